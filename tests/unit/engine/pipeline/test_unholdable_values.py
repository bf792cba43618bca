# SPDX-License-Identifier: Apache-2.0
"""What JSON cannot hold: refused where it enters, never stored as something else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from redrive import Pipeline, RetryPolicy, connect, stage
from redrive.engine.pipeline.codec import codec_for
from redrive.errors import SerializationError
from redrive.testing import run_inline

LOST = [math.nan, math.inf, -math.inf]


@dataclass
class Reading:
    value: float | None
    note: str | None = None


class Model(pydantic.BaseModel):
    value: float | None


@dataclass
class Tree:
    value: float | None
    branches: list[Tree]


@pytest.mark.parametrize("number", LOST)
@pytest.mark.parametrize("kind", [None, Any, float | None, list[Any], dict[str, float | None], list[object]])
def test_a_number_that_is_not_finite_is_refused_in_every_place(kind: object, number: float) -> None:
    codec = codec_for("price (output)", kind)
    value: object = number
    if kind in {list[Any], list[object]}:
        value = ["x", {"a": [number]}, None]
    elif kind == dict[str, float | None]:
        value = {"a": number, "b": None}

    with pytest.raises(SerializationError, match="NaN or an infinite number"):
        codec.seal(value)


@pytest.mark.parametrize("number", LOST)
def test_so_it_is_within_values_of_their_own_types(number: float) -> None:
    for kind, value in [
        (Reading, Reading(number)),
        (Model, Model(value=number)),
        (None, [Model(value=number), b"\xcb\x7f\xf8"]),
        (Tree, Tree(None, [Tree(number, [])])),
    ]:
        with pytest.raises(SerializationError, match="NaN or an infinite number"):
            codec_for("price (output)", kind).seal(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [None, 1.5, b"\xcb\x7f\xf8" * 3],
        {"a": None, "b": 1e308},
        Reading(None),
        msgspec.Raw(b" [null, 1.0]"),
    ],
)
def test_null_and_what_only_looks_like_such_a_number_are_taken(value: object) -> None:
    assert codec_for("price (output)", None).encode(value)
    assert codec_for("price (output)", Reading).encode(Reading(None, "x"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (None, {1: "a", "1": "b"}),
        (Any, [{"deep": {1: "a", "1": "b"}}]),
        (dict[int, str], {1: "a", "1": "b"}),
        (dict[str, object], {"x": {1.5: 1, "1.5": 2}}),
    ],
)
def test_two_keys_that_would_become_one_are_refused(kind: object, value: object) -> None:
    with pytest.raises(SerializationError, match="two keys of an object are the same text"):
        codec_for("price (output)", kind).seal(value)


def test_other_keys_that_are_no_texts_are_taken() -> None:
    assert codec_for("x", dict[int, str]).seal({1: "a", 2: "b"}) == b'{"1":"a","2":"b"}'
    assert codec_for("x", None).encode([{1: "a"}, msgspec.Raw(b'{ "a": 1 }')]) == b'[{"1":"a"},{ "a": 1 }]'


@pytest.mark.parametrize("text", [b"1e999", b"[-1e999]", b'{"a": 1E400}'])
def test_a_number_out_of_range_in_text_that_is_copied_is_refused(text: bytes) -> None:
    for kind in (None, msgspec.Raw):
        with pytest.raises(SerializationError, match="not one JSON value: Number out of range"):
            codec_for("price (output)", kind).seal(msgspec.Raw(text))


def test_they_are_refused_where_they_are_submitted_and_where_they_are_returned(clock: object) -> None:
    @stage(retry=RetryPolicy(1))
    def price(wish: object) -> object:
        return math.nan if wish == "nan" else msgspec.Raw(b"1e999")

    flow = Pipeline("shop", [price])

    for wish in ("nan", "raw"):
        assert run_inline(flow, wish).status == "failed"
    with connect(":memory:") as rd, pytest.raises(SerializationError):
        rd.submit(flow, math.inf)
