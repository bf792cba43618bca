# SPDX-License-Identifier: Apache-2.0
"""Ask about an exception that a library keeps inside another one, in an attribute instead of in `__cause__`.

Whatever library the inner exception comes from, its own rules answer. Nothing here knows which attribute that is: the rule files
do.
"""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Category, Code
from redrive.core.verdict import Verdict
from redrive.rules import find
from redrive.rules.shared.reading import home_of

_WRAPPERS: Final = frozenset({"sqlalchemy", "urllib"})
"""Libraries whose rules ask here themselves: asking them back would not end when two exceptions hold each other."""


def ask(inner: object, now: float) -> Verdict | Code | None:
    """Return what the rules say about the inner exception; None when it is none, or a wrapper itself, or not known."""
    if not isinstance(inner, BaseException) or _is_wrapper(type(inner)):
        return None
    answers = (found.apply(inner, now) for found in find(type(inner)))
    return next((answer for answer in answers if answer is not None), None)


def network_trouble(exc: BaseException, now: float) -> Code | None:
    """Return which trouble with the network a connection error came from, where a library keeps it only as the context.

    A context may also be a failure of something else that was being handled just then, so nothing but the network is believed.
    """
    answer = ask(exc.__cause__ or exc.__context__, now)
    code = answer.code if isinstance(answer, Verdict) else answer
    is_network = code is not None and (code.category is Category.NETWORK or code is taxonomy.TLS_CERTIFICATE)
    return code if is_network else None


def _is_wrapper(kind: type[BaseException]) -> bool:
    return any(home_of(cls) in _WRAPPERS for cls in kind.__mro__)
