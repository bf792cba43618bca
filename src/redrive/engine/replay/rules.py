# SPDX-License-Identifier: Apache-2.0
"""The replay rules, codes, stages, breakers and limits of a pipeline, stored for use without its code.

A pipeline that was never recorded is under the strictest rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

import msgspec
from msgspec import Struct

from redrive.core.arguments import seconds
from redrive.core.codeset import CodeSet
from redrive.core.decoding import prepare
from redrive.core.replay import ReplayRules
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.wiring import Shape, shape_of
from redrive.errors import ConfigurationError
from redrive.store.protocol import Store
from redrive.store.reader import Reader
from redrive.store.records import Step
from redrive.store.statements import replays as replay_sql


class OwnHint(Struct, frozen=True):
    """The hint for a code of the application."""

    code: str
    stages: tuple[str, ...]
    """The stages it is for; empty means all."""
    hint: str


class KnownBreaker(Struct, frozen=True):
    """The times of a breaker that some stage has."""

    name: str
    open_for: float
    probe_timeout: float
    stages: tuple[str, ...] = ()
    """The stages of the pipeline that have it."""


class KnownLimit(Struct, frozen=True):
    """The numbers of a limit that some stage has."""

    name: str
    rate: float | None
    burst: float | None
    concurrency: int | None
    is_adaptive: bool
    has_keys: bool
    stages: tuple[str, ...] = ()
    """The stages of the pipeline that have it."""


class KnownPipeline(Struct, frozen=True):
    """What is stored of a pipeline beside its rules."""

    hints: tuple[OwnHint, ...] = ()
    """In order of precedence."""
    stages: tuple[str, ...] = ()
    breakers: tuple[KnownBreaker, ...] = ()
    payload: Shape | None = None
    """None if that may be anything."""
    limits: tuple[KnownLimit, ...] = ()


def record_rules(store: Store, pipelines: Iterable[Pipeline]) -> None:
    """Store the rules, hints and stages of pipelines where they have changed. Only workers do: a submission decides no rules."""
    steps: list[Step] = []
    for pipeline in pipelines:
        rows = store.query(replay_sql.rules(pipeline=pipeline.name))
        present = KnownPipeline(
            _hints_in(pipeline.codes),
            tuple(stage.name for stage in pipeline.stages),
            _breakers_of(pipeline),
            shape_of(pipeline.payload.kind),
            _limits_of(pipeline),
        )
        if (_rules_in(rows), _recorded_in(rows)) != (pipeline.replay, present):
            steps.append(_put(pipeline.name, pipeline.replay, present))
    if steps:
        store.apply(*steps)


def _put(pipeline: str, rules: ReplayRules, present: KnownPipeline) -> Step:
    return replay_sql.put_rules(
        pipeline=pipeline, rules=msgspec.json.encode({**asdict(rules), **msgspec.structs.asdict(present)})
    )


def record_entry(store: Store, pipeline: Pipeline) -> None:
    """Record the stages and the payload of a pipeline, for submissions without its code, until a worker does.

    Raises:
        ConfigurationError: its first stage is a later one for the workers, and its jobs would skip the stages before it.
    """
    first, rows = pipeline.stages[0].name, store.query(replay_sql.rules(pipeline=pipeline.name))
    known = _recorded_in(rows)
    if not known.stages:
        stages = tuple(stage.name for stage in pipeline.stages)
        present = msgspec.structs.replace(known, stages=stages, payload=shape_of(pipeline.payload.kind))
        store.apply(_put(pipeline.name, _rules_in(rows), present))
    elif first in known.stages[1:]:
        raise ConfigurationError(
            field=f"Pipeline({pipeline.name}).stages",
            value=first,
            rule=f"must begin with the first stage, which is {known.stages[0]} for the workers of this database",
            fix="Submit with the pipeline that the workers have; start a worker first if that has changed.",
        )


def rules_of(store: Reader, pipeline: str) -> ReplayRules:
    """Return the rules of a pipeline, as recorded when it was last used."""
    return _rules_in(store.query(replay_sql.rules(pipeline=pipeline)))


def recorded(store: Reader, pipeline: str) -> KnownPipeline:
    """Return what is recorded of a pipeline, as the last worker that was started has it; nothing if nobody has used it."""
    return _recorded_in(store.query(replay_sql.rules(pipeline=pipeline)))


def known_breakers(store: Reader) -> dict[str, KnownBreaker]:
    """Return the breakers of all pipelines by name, as the workers have them."""
    return {breaker.name: breaker for _, breaker in breakers_in_use(store)}


def breakers_in_use(store: Reader) -> list[tuple[str, KnownBreaker]]:
    """Return the breakers of every pipeline, each with the name of the pipeline."""
    return [
        (row.pipeline, breaker)
        for row in store.query(replay_sql.all_rules())
        for breaker in _recorded_in([row.rules]).breakers
    ]


def limits_in_use(store: Reader) -> list[tuple[str, KnownLimit]]:
    """Return the limits of every pipeline, each with the name of the pipeline."""
    return [
        (row.pipeline, limit)
        for row in store.query(replay_sql.all_rules())
        for limit in _recorded_in([row.rules]).limits
    ]


def _limits_of(pipeline: Pipeline) -> tuple[KnownLimit, ...]:
    found = {limit.name: limit for stage in pipeline.stages for limit in stage.limits}
    return tuple(
        KnownLimit(
            name,
            None if one.rate is None else float(one.rate),
            one.burst,
            one.concurrency,
            one.adaptive,
            one.key is not None,
            tuple(stage.name for stage in pipeline.stages if one in stage.limits),
        )
        for name, one in sorted(found.items())
    )


def _breakers_of(pipeline: Pipeline) -> tuple[KnownBreaker, ...]:
    found = {stage.breaker.name: stage.breaker for stage in pipeline.stages if stage.breaker is not None}
    return tuple(
        KnownBreaker(
            name,
            seconds("open_for", one.open_for),
            seconds("probe_timeout", one.probe_timeout),
            tuple(stage.name for stage in pipeline.stages if stage.breaker == one),
        )
        for name, one in sorted(found.items())
    )


def _rules_in(rows: Sequence[bytes]) -> ReplayRules:
    return msgspec.json.decode(rows[0], type=ReplayRules) if rows else ReplayRules()


def _recorded_in(rows: Sequence[bytes]) -> KnownPipeline:
    return msgspec.json.decode(rows[0], type=KnownPipeline) if rows else KnownPipeline()


def _hints_in(codes: CodeSet | None) -> tuple[OwnHint, ...]:
    rows = () if codes is None else (*codes.codes, codes.otherwise)
    return tuple(OwnHint(row.name, tuple(sorted(row.stages)), row.hint) for row in rows if row.hint)


prepare(ReplayRules, KnownPipeline)
