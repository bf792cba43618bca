# SPDX-License-Identifier: Apache-2.0
"""Report on one guarded call: events for hooks, lines for the log, notes on the final exception.

Reporting never decides and never fails: a hook that raises is logged, an exception that accepts no notes gets none. Messages of
failures are redacted before they become part of a note. Text is rendered only for a log, hook or note that uses it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from redrive.core.decide import Decision, Reason
from redrive.core.decision_text import sentence_of
from redrive.core.failure import Failure
from redrive.core.units import plural
from redrive.engine.error_text import error_text, redacted

logger = logging.getLogger("redrive.guard")

NOTE_MESSAGE_MAX: Final = 200
NOTES_MAX: Final = 50

Kind = Literal["retry", "hold", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """The argument of a hook: one retry, hold or final failure of a guarded call."""

    kind: Kind
    name: str
    """The guarded function."""
    attempt: int
    failure: Failure | None
    """None when a breaker refused the call before it was made."""
    delay: float | None
    """Seconds until the next attempt or check of the breaker; None when there is none."""
    reason: Reason
    sentence: str


Hook = Callable[[CallEvent], object]


class CallHistory:
    """The failures of one call, and their reporting."""

    __slots__ = ("_count", "_failures", "_first_at", "_hooks", "_name")

    def __init__(self, name: str, hooks: Mapping[Kind, Hook]) -> None:
        self._name = name
        self._hooks = hooks
        self._first_at = 0.0
        self._failures: deque[tuple[Failure, Decision]] = deque(maxlen=NOTES_MAX)
        self._count = 0

    def emit(
        self,
        kind: Kind,
        why: Decision | str,
        *,
        attempt: int,
        failure: Failure | None = None,
        delay: float | None = None,
    ) -> None:
        """Write to the log and call the hook of this kind; a breaker that refuses gives a sentence instead of a decision."""
        hook = self._hooks.get(kind)
        if hook is None and not logger.isEnabledFor(logging.INFO):
            return
        sentence = why if isinstance(why, str) else str(sentence_of(why))
        # At most INFO: the caller gets the exception and decides how to log it.
        logger.info("%s: %s", self._name, sentence)
        if hook is None:
            return
        event = CallEvent(
            kind=kind,
            name=self._name,
            attempt=attempt,
            failure=failure,
            delay=delay,
            reason=Reason.BREAKER if isinstance(why, str) else why.reason,
            sentence=sentence,
        )
        try:
            hook(event)
        except Exception as error:  # noqa: BLE001 - a hook observes; its failure must not change the outcome of the call.
            text = error_text(error)
            logger.error("%s: the on_%s hook failed: %s", self._name, kind, text)  # noqa: TRY400 - a traceback is not redacted.

    def add(self, failure: Failure, decision: Decision, now: float) -> None:
        """Add one failure and the decision about it."""
        if not self._count:
            self._first_at = now
        self._failures.append((failure, decision))
        self._count += 1

    def attach(self, exc: BaseException, attempt: int, now: float, decision: Decision) -> None:
        """Attach the history to the exception that the caller gets; a failure here never replaces the exception."""
        start = f"redrive gave up on {self._name} after "
        tries = plural(attempt, "attempt")
        sentence = sentence_of(decision)
        note = f"{start}{tries}: {sentence}"
        if self._count > 1:
            note = f"{start}{tries}, {now - self._first_at:.3g} s after the first failure: {sentence}"
            # The last failure is the exception itself, and its decision is in the first line.
            self._failures.pop()
            note = f"{note}\n{self._history(shown_elsewhere=1)}"
        try:
            # Some libraries raise the same exception object repeatedly; the newest history replaces the previous one.
            others = [n for n in getattr(exc, "__notes__", ()) if not str(n).startswith(start)]
            exc.__notes__ = [*others, note]
        except Exception:  # noqa: BLE001 - an exception class may refuse attributes; then it gets no note.
            logger.debug("%s: no note can be attached to %s", self._name, type(exc).__name__)

    def attach_history(self, error: BaseException) -> None:
        """Attach the failures before the breaker refused."""
        if self._failures:
            error.add_note(self._history())

    def _history(self, *, shown_elsewhere: int = 0) -> str:
        left_out = self._count - shown_elsewhere - len(self._failures)
        first = [f"  ({left_out} earlier failures omitted)"] if left_out else []
        return "\n".join([*first, *(_line(failure, decision) for failure, decision in self._failures)])


def _line(failure: Failure, decision: Decision) -> str:
    try:
        # Redact before cutting: half a secret would not be recognised.
        message = redacted(failure.message).strip().partition("\n")[0]
    except Exception:  # noqa: BLE001 - the caller gets its own exception, whatever happens here.
        message = "(cannot be redacted)"
    text = message if len(message) <= NOTE_MESSAGE_MAX else message[:NOTE_MESSAGE_MAX] + "..."
    return f"  {failure.exception}: {text} -> {sentence_of(decision)}"
