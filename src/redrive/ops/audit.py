# SPDX-License-Identifier: Apache-2.0
"""Who did something, and why: the line of the operator log that goes into the transaction of every change made by hand."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from redrive.engine.pipeline.codec import storable
from redrive.engine.runtime import CURRENT
from redrive.redaction.process import redact, redact_mapping
from redrive.store.protocol import Step


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and why."""

    name: str
    reason: str | None = None

    def hiding(self, values: Mapping[str, str]) -> Actor:
        """Return the same with the values of the jobs it is about taken out of the reason."""
        return Actor(self.name, safe_text(self.reason, values))

    def line(self, verb: str, subject: str) -> tuple[float, str, str, str, str | None]:
        """Return what every line of the log begins with: when, who, what, about what, why; redacted."""
        at, actor = CURRENT.get().clock.wall(), redact(storable(self.name))
        return at, actor, verb, redact(storable(subject)), safe_text(self.reason)

    def log(self, verb: str, subject: str, *, change: Mapping[str, object] | None = None) -> Step:
        """Return the step that writes this act down, with what was before and after, if that is told; redacted."""
        line = self.line(verb, subject)
        return Step("log", line) if change is None else Step("log_letters", (*line, None, _kept(change)))

    def log_letters(
        self,
        verb: str,
        subject: str,
        *,
        letters: int,
        change: Mapping[str, object] | None = None,
        ids: Iterable[int] = (),
    ) -> Step:
        """Return the step that writes down an act on dead letters: how many, and what was before and after; redacted.

        `ids`, in rising order, are those of letters that the subject does not name: by them each letter's story has this act.
        """
        return Step("log_letters", (*self.line(verb, subject), letters, _kept(change or {}, ids)))


def _kept(change: Mapping[str, object], ids: Iterable[int] = ()) -> str | None:
    """Return what an act changed as redacted JSON; None when nothing is told."""
    # Ids are added after the redactor, which might take long numbers for something they are not.
    told = cast("dict[str, object]", redact_mapping(change))
    told |= {"letters": rows} if (rows := unbroken(ids)) else {}
    return msgspec.json.encode(told).decode() if told else None


def unbroken(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return rising ids as the first and the last of each unbroken row of them."""
    rows: list[tuple[int, int]] = []
    for each in ids:
        if rows and each == rows[-1][1] + 1:
            rows[-1] = (rows[-1][0], each)
        else:
            rows.append((each, each))
    return rows


def safe_text(text: str | None, values: Mapping[str, str] | None = None) -> str | None:
    """Return what a person wrote, fit to be stored and without the literals in `values`; None stays None."""
    return None if text is None else redact(storable(text), payload=values)


def present_user() -> str:
    """Return the name of the user this process runs as; `unknown` where the system has none for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
