# SPDX-License-Identifier: Apache-2.0
"""Ask about an exception that a library keeps inside another one, in an attribute instead of in `__cause__`.

Whatever library the inner exception comes from, its own rules answer. Nothing here knows which attribute that is: the rule files
do.
"""

from __future__ import annotations

from typing import Final

from redrive.core.failure import Code
from redrive.core.verdict import Moment, Verdict
from redrive.rules import find

_WRAPPERS: Final = frozenset({"sqlalchemy", "urllib"})
"""Libraries whose rules ask here themselves: asking them back would not end when two exceptions hold each other."""


def ask(inner: object, moment: Moment) -> Verdict | Code | None:
    """Return what the rules say about the inner exception; None when it is none, or a wrapper itself, or not known."""
    if not isinstance(inner, BaseException) or _is_wrapper(type(inner)):
        return None
    answers = (found.read(inner, moment) for found in find(type(inner)))
    return next((answer for answer in answers if answer is not None), None)


def _is_wrapper(kind: type[BaseException]) -> bool:
    return any(cls.__module__.partition(".")[0] in _WRAPPERS for cls in kind.__mro__)
