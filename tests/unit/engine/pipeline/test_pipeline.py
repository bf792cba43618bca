# SPDX-License-Identifier: Apache-2.0
"""Declaring stages and pipelines: what is read from annotations, and every misuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pydantic
import pytest

from redrive import Breaker, ConfigurationError, Limit, RetryPolicy
from redrive.engine.pipeline.codec import codec_for
from redrive.engine.pipeline.context import Context
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.pipeline.stage import Stage, stage
from redrive.engine.worker.dead_letter import literals_in
from redrive.errors import SerializationError


@dataclass
class Data:
    n: int


class Record(msgspec.Struct):
    n: int


class Row(TypedDict):
    n: int


class Model(pydantic.BaseModel):
    n: int


@pytest.mark.parametrize("kind", [Data, Record, Row, Model, dict[str, int]])
def test_values_of_every_kind_go_through_json_and_come_back(kind: type) -> None:
    codec = codec_for("fetch", kind)
    value = codec.check(b'{"n": 5}')

    assert codec.check(codec.encode(value)) == value
    with pytest.raises(SerializationError, match="n"):
        codec.check(b'{"n": "five"}')


def test_without_a_type_whatever_json_holds_is_taken() -> None:
    assert codec_for("fetch", None).check(b'[1, {"a": null}]') == [1, {"a": None}]
    with pytest.raises(SerializationError, match="fetch"):
        codec_for("fetch", None).check(b"{")


def test_a_type_that_json_cannot_hold_is_refused_when_it_is_declared() -> None:
    with pytest.raises(SerializationError, match="fetch"):
        codec_for("fetch", dict[int, complex] | list[int] | set[int])


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    def vague(value: Unknown) -> Missing:  # type: ignore[name-defined]  # noqa: F821 - that is the point.
        return value

    with pytest.raises(ConfigurationError, match="'Unknown' is not defined"):
        stage(vague)


def test_a_stage_knows_its_context_parameter_wherever_it_stands() -> None:
    @stage(name="check", retry=RetryPolicy(5), idempotent=True)
    def run(ctx: Context, value: int, extra: str = "x") -> int:
        return value

    assert (run.name, run.context_name, run.is_idempotent, run.retry.max_attempts) == (
        "check",
        "ctx",
        True,
        5,
    )
    assert run.input.check(b"3") == 3


def nothing() -> None: ...


def two(_a: int, _b: int) -> None: ...


def generator(_a: int) -> object:
    yield 1


def fine(a: int) -> int:
    return a


class Holder:
    def method(self, number: int) -> int:
        return number


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (lambda: stage(nothing), "exactly one input"),
        (lambda: stage(two), "exactly one input"),
        (lambda: stage(generator), "function that returns"),
        (lambda: stage(42), "function that returns"),  # type: ignore[call-overload]
        (lambda: stage(retry="3")(fine), "RetryPolicy"),  # type: ignore[call-overload]
        (lambda: stage(retry=True)(fine), "RetryPolicy"),
        (lambda: stage(retry=0)(fine), "max_attempts"),
        (lambda: stage(timeout=-5)(fine), "more than 0 seconds"),
        (lambda: stage(timeout=5, on_overrun="abandon")(fine), "that are idempotent"),
        (lambda: stage(on_overrun="leave")(fine), "on_overrun"),  # type: ignore[call-overload]
        (lambda: stage(concurrency=0)(fine), "at least 1"),
        (lambda: stage(idempotent="yes")(fine), "True or False"),  # type: ignore[call-overload]
        (lambda: stage(Holder.method), "the method Holder.method"),
        (lambda: Pipeline([stage(fine)], "shop"), "got [Stage(fine)]"),  # type: ignore[arg-type]
        (lambda: stage(name=" ")(fine), "must be a name"),
        (lambda: stage(name="x" * 101)(fine), "must be a name"),
        (lambda: Pipeline("", [stage(fine)]), "must be a name"),
        (lambda: Pipeline("p q\n", [stage(fine)]), "printable"),
        (lambda: Pipeline(" ", [stage(fine)]), "must be a name"),
        (lambda: stage(name="a\x1b[31m")(fine), "printable"),
        (lambda: Pipeline("shop", stage(fine)), "must be a list"),  # type: ignore[arg-type]
        (lambda: Pipeline("shop", "fine"), "must be a list"),  # type: ignore[arg-type]
        (lambda: Pipeline("shop", [stage(fine)], resources=fine), "must be a list"),  # type: ignore[arg-type]
        (lambda: Pipeline("shop", [stage(fine)], sinks=5), "must be a list"),  # type: ignore[arg-type]
        (lambda: Pipeline("shop", []), "at least one stage"),
        (lambda: Pipeline("shop", [fine]), "@stage"),  # type: ignore[list-item]
        (lambda: Pipeline("shop", [stage(fine), stage(fine)]), "distinct names"),
    ],
)
def test_misuse_is_refused_with_a_fix(misuse: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        misuse()

    assert words in str(refused.value)
    assert len(str(refused.value)) < 400
    assert refused.value.fix


def test_a_name_may_hold_spaces() -> None:
    assert Pipeline("the shop", [stage(name="look up")(fine)]).name == "the shop"


def test_the_longer_strings_of_an_input_are_known_by_their_place() -> None:
    found = literals_in(b'{"secret-key-name": "long enough", "b": ["short", "also long enough"], "c": 5}')

    assert found == {"long enough": "<payload:$.0>", "also long enough": "<payload:$.1[1]>"}
    assert literals_in(b"not json") == {"not json": "<payload:*>"}
    assert len(literals_in(msgspec.json.encode([f"string {n:06}" for n in range(4_000)]))) == 4_000


def test_the_hash_of_the_settings_is_the_same_in_every_process() -> None:
    """A function among them is another object there, at another address."""

    def declared() -> Stage[[int], int]:
        limit = Limit("api", rate=5, cost=lambda number: 2.0 * number)

        @stage(limits=limit, breaker=Breaker("api", consecutive=3, probe=lambda: None))
        def call(number: int) -> int:
            return number

        return call

    # Both are alive, so their functions have different addresses.
    first, again = declared(), declared()

    assert repr(first.limits) != repr(again.limits)
    assert first.config == again.config
