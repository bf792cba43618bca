# SPDX-License-Identifier: Apache-2.0
"""Suggestions for messages about a wrong name or id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from redrive.core.arguments import did_you_mean
from redrive.errors import UnknownNameError
from redrive.store.reader import Reader
from redrive.store.statements import jobs as job_sql
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import replays as replay_sql

SHOWN_MAX: Final = 10
NEAR: Final = 5
"""How far from a wrong id to look for right ones."""
LAST_ID: Final = 2**62
"""Greater than every id."""


def unknown(name: str, known: Iterable[str], *, kind: str, otherwise: str) -> UnknownNameError:
    """Return the error about an unknown name, with similar ones, or else with all there are."""
    names = sorted(known)
    fix = did_you_mean(name, names)
    if not fix and names:
        rest = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        fix = f"Known here: {', '.join(names[:SHOWN_MAX])}{rest}."
    return UnknownNameError(field=kind, value=name, rule="is not known here", fix=fix or otherwise)


def id_hint(store: Reader, noun: Literal["job", "letter"], wanted: int) -> str:
    """Return a hint about an id that does not exist: ids close to it, or the last one there is."""
    name = "dead letter" if noun == "letter" else noun
    is_job = noun == "job"
    (last,) = store.query(job_sql.last_job()) if is_job else [store.query(replay_sql.last_letter())[0].cutoff]
    if not last:
        return f"There are no {name}s in this database; check that it is the right one."
    nearest = job_sql.nearest_jobs if is_job else letter_sql.nearest_letters
    near = store.query(nearest(first=wanted - NEAR, last=wanted + NEAR)) if wanted < LAST_ID else []
    if near:
        return f"Close to it are: {', '.join(map(str, near))}."
    return f"The last {name} is {last}; it may have been pruned, or be in another database."
