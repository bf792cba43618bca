# SPDX-License-Identifier: Apache-2.0
"""Keyword arguments that several nouns of a connection share: which dead letters, and who acts.

An unknown name is refused: ignored, it would match all letters, or leave the operator log without its actor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from redrive.engine.replay.filter import LetterFilter
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError
from redrive.ops.audit import Actor
from redrive.ops.letters.filter import check_code, filter_from
from redrive.ops.suggest import unknown
from redrive.store.protocol import Store


class FilterOptions(TypedDict, total=False):
    """A filter over dead letters, as keyword arguments; what is left out matches all."""

    pipeline: str
    stage: str
    code: str
    category: str
    group: str
    state: str
    owner: str
    key: str
    since: datetime | timedelta
    until: datetime | timedelta
    ids: Sequence[int]
    escalated: bool
    assignee: str
    run: int


class ActorOptions(TypedDict, total=False):
    """Who acts, and why."""

    actor: str
    reason: str | None


def filter_of(store: Store, which: FilterOptions) -> LetterFilter:
    """Return the filter from keyword arguments; a prefix of a fingerprint becomes the whole.

    Raises:
        ConfigurationError: an unknown name, state, category or code: ignored, it would match all letters, or none.
    """
    _check_names(which, FilterOptions)
    if (code := which.get("code")) is not None:
        check_code(store, code, may_be_new=True)
    times = {"since": _instant("since", which.get("since")), "until": _instant("until", which.get("until"))}
    return filter_from(store, {**which, **times})


def _instant(field: str, value: object) -> float | None:
    """Return an instant in seconds since the epoch: a datetime, or a timedelta before now; refuse anything else."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return CURRENT.get().clock.wall() - value.total_seconds()
    if not isinstance(value, datetime):
        raise ConfigurationError(
            field=field,
            value=value,
            rule="must be a datetime, or a timedelta before now",
            fix="timedelta(hours=2), for example.",
        )
    return value.timestamp()


def _check_names(given: Mapping[str, object], known: type[FilterOptions | ActorOptions]) -> None:
    for name in given:
        if name not in known.__annotations__:
            raise unknown(name, known.__annotations__, kind="argument", otherwise="")


def actor_of(by: ActorOptions) -> Actor:
    """Return who acts, and why; raises ConfigurationError for an unknown argument."""
    _check_names(by, ActorOptions)
    return Actor(by.get("actor", "api"), by.get("reason"))
