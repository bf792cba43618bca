# SPDX-License-Identifier: Apache-2.0
"""What a rule returns for an exception: the interface between `core.classify` and `redrive.rules`.

A rule is a plain function of the exception and the time. It returns a `Verdict`, or None to let the next rule try. Rules never
import the library whose errors they read: they are found by the name of the exception's class, and read its attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from msgspec import Struct

from redrive.core.failure import Code
from redrive.core.taxonomy import code_named


class Verdict(Struct, frozen=True, kw_only=True):
    """A rule's answer: the canonical code, and other facts from the exception."""

    code: Code
    http_status: int | None = None
    retry_after: float | None = None
    provider_code: str | None = None
    request_id: str | None = None

    @classmethod
    def of(cls, code: str, *, http_status: int | None = None, retry_after: float | None = None) -> Self:
        """Build a verdict from the name of a canonical code, as rules of users do."""
        return cls(code=code_named(code), http_status=http_status, retry_after=retry_after)


RuleFunction = Callable[[BaseException, float], "Verdict | Code | None"]
"""A function of the exception and of the time now, in seconds since the epoch (some headers name an instant). Returning a plain
`Code` is short for a verdict with no other facts."""

RuleEntry = Code | RuleFunction
"""An entry of a rule table: a fixed code, or a function that reads the exception."""

RuleTable = Mapping[str, RuleEntry]
"""One library's rules: unqualified class name -> what an exception of that class means; its subclasses inherit the entry."""
