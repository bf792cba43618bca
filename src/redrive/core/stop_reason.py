# SPDX-License-Identifier: Apache-2.0
"""Why a replay or a run was paused, stopped, cancelled or aborted: values, stored as JSON, and the sentence that people read.

Like a decision about an attempt, a reason is rendered only when it is read, and here alone. What an operator gives as their own
reason is not part of it: that is in the operator log.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct


class SameFailures(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="same_failures"
):
    """Of a replay: letters failed again as before."""

    same: int
    ended: int
    share_max: float | None = None
    """The share that was allowed; None where one is too many."""


class MostFailures(Struct, frozen=True, kw_only=True, tag_field="kind", tag="most_failures"):
    """Of a replay: most letters failed again, in whatever way."""

    failed: int
    ended: int
    other: int
    """Those among the failed ones with another failure than before."""


class BudgetExceeded(Struct, frozen=True, kw_only=True, tag_field="kind", tag="budget"):
    """Of a run: too much of it failed."""

    dead: int
    finished: int
    max_rate: float

    @property
    def rate(self) -> float:
        """The share of the finished jobs that failed."""
        return self.dead / self.finished


class Interruption(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="interruption"
):
    """Of a run: an error ended the process that fed it."""

    error: str
    """The class of the error."""
    item: int | None = None
    """The place of the item that it is about."""


class LongHold(Struct, frozen=True, kw_only=True, tag_field="kind", tag="long_hold"):
    """Of a run: all that is left was held for longer than it may wait."""

    seconds: float


class OperatorStop(Struct, frozen=True, kw_only=True, tag_field="kind", tag="operator"):
    """Somebody did it."""

    act: Literal["paused", "cancelled"]
    actor: str


class TextReason(Struct, frozen=True, tag_field="kind", tag="text"):
    """A sentence of the time before reasons were values."""

    text: str


StopReason: TypeAlias = (
    SameFailures | MostFailures | BudgetExceeded | Interruption | LongHold | OperatorStop | TextReason
)
_DECODER: Final = msgspec.json.Decoder[StopReason](StopReason)


def encode_stop_reason(reason: StopReason) -> str:
    """Return a reason as the store keeps it."""
    return msgspec.json.encode(reason).decode()


def stop_sentence_in(text: str | None) -> str | None:
    """Return the sentence of a stored reason; None when there is none, or none that can be read."""
    try:
        return None if text is None else stop_sentence(_DECODER.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def stop_sentence(reason: StopReason) -> str:
    """Return a reason as a sentence without its end."""
    match reason:
        case SameFailures():
            share = "" if reason.share_max is None else f", more than {reason.share_max:.0%}"
            text = f"{reason.same} of {reason.ended} failed again with the same failure{share}"
        case MostFailures():
            text = (
                f"{reason.failed} of {reason.ended} failed again, {reason.other} of them with another failure"
            )
        case BudgetExceeded():
            failed = f"{reason.dead} of {reason.finished} finished jobs failed ({reason.rate:.1%})"
            text = f"{failed}, the budget is {reason.max_rate:.1%}"
        case Interruption():
            place = "" if reason.item is None else f" at item {reason.item}"
            text = f"it was interrupted by {reason.error}{place}"
        case LongHold():
            text = f"all remaining items have been held for {reason.seconds:g} s"
        case OperatorStop():
            text = f"{reason.act} by {reason.actor}"
        case TextReason():
            text = reason.text
        case _:
            assert_never(reason)
    return text
