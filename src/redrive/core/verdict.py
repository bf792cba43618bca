# SPDX-License-Identifier: Apache-2.0
"""What a rule says about an exception: the seam between `core.classify` and everything in `redrive.rules`.

A rule is a plain function of the exception. It answers with a `Verdict`, or with None for "not mine, ask the next one". Rules
never import the library whose errors they read: they are found by the name of the exception's class, and look at attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from msgspec import Struct

from redrive.core.failure import Code
from redrive.core.taxonomy import code_named


class Verdict(Struct, frozen=True, kw_only=True):
    """A rule's answer: which canonical code, and what else the exception told."""

    code: Code
    http_status: int | None = None
    retry_after: float | None = None
    provider_code: str | None = None
    request_id: str | None = None

    @classmethod
    def of(cls, code: str, *, http_status: int | None = None, retry_after: float | None = None) -> Self:
        """Build a verdict from the name of a canonical code, as rules of users do."""
        return cls(code=code_named(code), http_status=http_status, retry_after=retry_after)


class Moment(Struct, frozen=True):
    """What a rule may know besides the exception."""

    now: float
    """Wall-clock seconds since the epoch, for headers that name an instant."""


Read = Callable[[BaseException, Moment], "Verdict | Code | None"]
"""A rule's function. A bare `Code` is short for a verdict with nothing else to tell."""

Reading = Code | Read
"""What stands in a rule table: a fixed code, or a function that reads the exception."""

RuleTable = Mapping[str, Reading]
"""One library's rules: unqualified class name -> what an exception of that class means; its subclasses inherit the entry."""
