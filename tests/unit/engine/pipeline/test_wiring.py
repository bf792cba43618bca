# SPDX-License-Identifier: Apache-2.0
"""Stages are connected when a pipeline is made: what can never work is refused, and what may work is accepted."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import ConfigurationError, Pipeline, Redrive, stage
from redrive.engine.pipeline.codec import codec_for
from redrive.engine.pipeline.wiring import can_be, mismatch, shape_of
from redrive.errors import SerializationError, UnknownNameError


@dataclass
class Order:
    id: int
    note: str = ""


@dataclass
class Receipt:
    id: int
    paid: bool


class Compact(msgspec.Struct, array_like=True):
    id: int


class Plain(msgspec.Struct):
    id: int


class Model(pydantic.BaseModel):
    id: int


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Row(TypedDict):
    id: int


class Point(NamedTuple):
    x: int


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


IMPOSSIBLE = [
    (int, str),
    (str, int),
    (str, Order),
    (Order, str),
    (Order, list[int]),
    (list[int], Order),
    (dict[str, int], list[int]),
    (bool, int),
    (int, bool),
    (None, int),
    (type(None), Order),
    (Point, Order),
    (Compact, Order),
    (Colour, int),
    (Level, str),
    (Literal["a"], int),
    (int | float, str),
    (bytes, dict[str, int]),
    (Annotated[int, msgspec.Meta(gt=0)], str),
]
POSSIBLE = [
    (int, float),
    (float, int),
    (int, int | None),
    (int | None, int),
    (int | str, str),
    (Any, int),
    (object, int),
    (int, Any),
    (Order, Receipt),
    (Order, dict[str, Any]),
    (Row, Order),
    (Plain, Order),
    (Model, int),
    (Numbers, list[int]),
    (int, Model),
    (list[int], tuple[int, ...]),
    (list[int], set[str]),
    (Point, list[int]),
    (Compact, list[int]),
    (str, datetime),
    (datetime, str),
    (str, UUID),
    (bytes, str),
    (Decimal, str),
    (float, Decimal),
    (Colour, str),
    (Level, int),
    (Literal["a", 1], int),
    (msgspec.Raw, int),
]


def flow_of(given: object, taken: object) -> Pipeline:
    def first(_value: object) -> None: ...

    def second(_value: object) -> None: ...

    # Types that only the test knows: they cannot be written as annotations.
    first.__annotations__ = {"return": given}
    second.__annotations__ = {"_value": taken}
    return Pipeline("shop", [stage(first), stage(second)])


@pytest.mark.parametrize(("given", "taken"), [pair for pair in IMPOSSIBLE if pair[0] is not None])
def test_an_output_that_can_never_be_the_next_input_is_refused(given: object, taken: object) -> None:
    with pytest.raises(ConfigurationError, match=r"first returns .*, and second takes ") as refused:
        flow_of(given, taken)

    name = getattr(taken, "__name__", str(taken))
    assert name in str(refused.value)


@pytest.mark.untraced
@pytest.mark.parametrize(("given", "taken"), POSSIBLE)
def test_an_output_that_may_be_the_next_input_is_accepted(given: object, taken: object) -> None:
    assert flow_of(given, taken).name == "shop"


def test_stages_without_annotations_are_accepted() -> None:
    def plain(value: object) -> object:
        return value

    plain.__annotations__ = {}

    def number(value: int) -> int:
        return value

    flow = Pipeline("shop", [stage(number), stage(plain), stage(name="again")(number)])

    assert len(flow.stages) == 3


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
TYPES: list[Any] = [
    int, float, str, bool, type(None), bytes, datetime, UUID, Decimal, list[Any], dict[str, Any], set[str],
    tuple[int, ...], Order, Plain, Compact, Row, Point, Colour, Level, Literal["a", 3], int | None, str | int,
]  # fmt: skip


@pytest.mark.untraced
@given(VALUES, st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_no_value_that_both_types_accept_is_between_types_that_are_refused(
    value: object, given: object, taken: object
) -> None:
    encoded = msgspec.json.encode(value)
    for kind in (given, taken):
        try:
            codec_for("value", kind).check(encoded)
        except SerializationError:
            return

    assert can_be(given, taken)


@stage
def price(order: Order) -> int:
    return order.id


@stage
def pay(amount: int) -> str:
    return f"paid {amount}"


SHOP = Pipeline[Order, str]("shop", (price, pay))


@dataclass
class NewOrder:
    """What another program knows of an order."""

    id: int
    extra: str = ""


def test_a_reference_submits_without_the_code_of_the_stages(rd: Redrive) -> None:
    rd.work([SHOP], until_idle=True)
    shop = Pipeline.ref("shop", payload=NewOrder)

    job = rd.submit(shop, NewOrder(7), key="a")
    ids = rd.submit_many(shop, [NewOrder(8)])
    rd.work([SHOP], until_idle=True)

    assert job.result() == "paid 7"
    assert rd.job(ids[0], SHOP).result() == "paid 8"
    assert repr(shop) == "Pipeline.ref(shop)"


def test_a_reference_to_a_pipeline_that_nobody_recorded_is_refused(rd: Redrive) -> None:
    with pytest.raises(UnknownNameError, match="start one first"):
        rd.submit(Pipeline.ref("shop", payload=Order), Order(1))
    rd.work([SHOP], until_idle=True)
    with pytest.raises(UnknownNameError, match="Did you mean shop"):
        rd.submit(Pipeline.ref("shpo", payload=Order), Order(1))
    assert rd.jobs.counts() == {}


@dataclass
class Without:
    note: str


@dataclass
class Worded:
    id: str


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        (int, 1, "it is number, and the pipeline takes object"),
        (Without, Without("x"), "it has no field id"),
        (Worded, Worded("x"), "its field id is text, and the pipeline takes number"),
    ],
)
def test_a_payload_type_that_does_not_match_the_recorded_one_is_refused(
    rd: Redrive, kind: type[Any], payload: object, words: str
) -> None:
    rd.work([SHOP], until_idle=True)

    with pytest.raises(ConfigurationError, match=words):
        rd.submit(Pipeline.ref("shop", payload=kind), payload)


def test_a_payload_that_does_not_fit_its_own_type_is_refused(rd: Redrive) -> None:
    rd.work([SHOP], until_idle=True)

    with pytest.raises(SerializationError, match="payload"):
        rd.submit(Pipeline.ref("shop", payload=Order), {"id": "x"})  # type: ignore[misc]


def test_shapes_that_are_not_certain_match() -> None:
    assert shape_of(Any) is None
    assert mismatch(shape_of(Any), shape_of(int)) is None
    assert mismatch(shape_of(dict[str, int]), shape_of(Order)) is None
    assert mismatch(shape_of(Model), shape_of(Order)) is None


def test_the_code_of_a_submitter_records_the_payload_until_a_worker_did(rd: Redrive) -> None:
    rd.submit(SHOP, Order(1))

    with pytest.raises(ConfigurationError, match="it has no field id"):
        rd.submit(Pipeline.ref("shop", payload=Without), Without("x"))


def test_a_handle_of_another_pipeline_is_refused(rd: Redrive) -> None:
    job = rd.submit(SHOP, Order(1))
    other = Pipeline("other", [price])

    with pytest.raises(ConfigurationError, match="is not the one of job 1, shop"):
        rd.job(job.id, other)
    with pytest.raises(ConfigurationError, match="must be a pipeline"):
        rd.submit("shop", 1)  # type: ignore[arg-type]
