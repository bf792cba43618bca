# SPDX-License-Identifier: Apache-2.0
"""Classify an exception that a library stores in an attribute of another one instead of in `__cause__`.

The rules of the inner exception's own library apply. The rule files know the attribute; this module does not.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Category, Code
from redrive.core.verdict import Verdict
from redrive.rules import find
from redrive.rules.shared.inspection import package_of

_WRAPPERS: Final = frozenset({"sqlalchemy", "urllib"})
"""Libraries whose rules call this module; calling them back would not end if two exceptions refer to each other."""


def verdict_of(inner: object, now: float) -> Verdict | Code | None:
    """Return the verdict on the inner exception; None when it is not an exception, is itself a wrapper, or has no rule."""
    if not isinstance(inner, BaseException) or _is_wrapper(type(inner)):
        return None
    answers = (found.apply(inner, now) for found in find(type(inner)))
    return next((answer for answer in answers if answer is not None), None)


def network_code_in_context(exc: BaseException, now: float) -> Code | None:
    """Return the network failure behind a connection error whose library has it only as the context.

    The context may also be a failure of something else, so only network codes count.
    """
    answer = verdict_of(exc.__cause__ or exc.__context__, now)
    code = answer.code if isinstance(answer, Verdict) else answer
    is_network = code is not None and (code.category is Category.NETWORK or code is taxonomy.TLS_CERTIFICATE)
    return code if is_network else None


def _is_wrapper(kind: type[BaseException]) -> bool:
    return any(package_of(cls) in _WRAPPERS for cls in kind.__mro__)
