# SPDX-License-Identifier: Apache-2.0
"""The values of jobs as literals, to be redacted from what people write about those jobs: reasons, evidence and notes.

Patterns find what looks like a secret anywhere. Any other value can only be found by reading its job, so this is done for at most
`LETTERS_MAX` letters; texts about more of them are redacted by patterns alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

import msgspec

from redrive.engine.replay.record import Replay
from redrive.engine.worker.dead_letter import literals_in
from redrive.ops.letters.freeze import FrozenSet, frozen_steps, id_steps
from redrive.redaction.process import MARGIN
from redrive.store.protocol import Store
from redrive.store.statements import transfer as transfer_sql
from redrive.store.statements import triage as triage_sql

LETTERS_MAX: Final = 100
"""Letters whose values are read for one act."""


def values_of_job(store: Store, job: int, *texts: str | None) -> dict[str, str]:
    """Map the longer strings of a job's values and edits to placeholders; only those that fit into one of `texts`."""
    longest = max((len(text) for text in texts if text), default=0)
    found: dict[str, str] = {}
    for value in _kept(store, job) if longest else ():
        literals = literals_in(value)
        found |= {literal: mark for literal, mark in literals.items() if len(literal) <= longest + MARGIN}
    return found


def values_of_letters(store: Store, letters: Iterable[int], *texts: str | None) -> dict[str, str]:
    """Do the same for the jobs of at most `LETTERS_MAX` letters; an empty mapping for more."""
    few = list(islice(letters, LETTERS_MAX + 1)) if any(texts) else []
    if len(few) > LETTERS_MAX:
        return {}
    rows = (
        row for letter in few for row in store.query(triage_sql.letter_values(letter=letter, part="payload"))
    )
    found: dict[str, str] = {}
    for job in dict.fromkeys(row.job for row in rows):
        found |= values_of_job(store, job, *texts)
    return found


def values_of_set(store: Store, frozen: FrozenSet, *texts: str | None) -> dict[str, str]:
    """Do the same for a frozen set."""
    if frozen.count > LETTERS_MAX:
        return {}
    return values_of_letters(store, chain.from_iterable(frozen_steps(store, frozen)), *texts)


def values_of_replay(store: Store, replay: Replay, *texts: str | None) -> dict[str, str]:
    """Do the same for the letters of a replay. They have left the state its filter asks for, so any state matches."""
    if replay.expected > LETTERS_MAX:
        return {}
    which = msgspec.structs.replace(replay.filter, state=None)
    return values_of_letters(store, chain.from_iterable(id_steps(store, which, replay.cutoff)), *texts)


def _kept(store: Store, job: int) -> Iterator[bytes]:
    """Yield the stored values of a job: its payload, the input of its stage, and both before and after edits."""
    for row in (
        *store.query(transfer_sql.exported_values(job=job)),
        *store.query(triage_sql.edits_of_job(job=job)),
    ):
        yield from (value for value in row if value is not None)
