# SPDX-License-Identifier: Apache-2.0
"""What becomes JSON on its way into the store, and what is refused there: nothing that could not be read again gets in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from msgspec import Raw

from redrive import Pipeline, Redrive, stage
from redrive.engine.pipeline.codec import DEPTH_MAX, codec_for, describe_mismatch
from redrive.errors import SerializationError
from redrive.store.sqlite.store import SqliteStore
from tests.unit.build import ONCE, jobs, letters, one_stage, work

pytestmark = pytest.mark.usefixtures("clock")

CODEC = codec_for("fetch (output)", None)
NO_JSON = {
    "a second value": b"1],[2",
    "not ended": b'{"a":',
    "nothing": b"",
    "no JSON": b"NaN",
    "latin-1": b'"tea\xe9"',
    "half of a pair": b'"\xed\xa0\x80"',
    "very deep": b"[" * 5_000 + b"]" * 5_000,
}
spoiled = pytest.mark.parametrize("text", NO_JSON.values(), ids=NO_JSON)


@dataclass
class Page:
    status: int
    body: Raw


class Own:
    """A model with a codec of its own, which may say anything."""

    def __init__(self, text: str) -> None:
        self._text = text

    def model_dump_json(self) -> str:
        return self._text


class Tree(pydantic.BaseModel):
    below: Tree | None = None


def nested(depth: int) -> object:
    """Return lists and objects in turn, so many deep."""
    value: object = None
    for level in range(depth):
        value = {"a": value} if level % 2 else [value]
    return value


@spoiled
def test_raw_text_that_is_not_one_json_value_is_refused_wherever_it_stands(text: bytes) -> None:
    for value in (Raw(text), Page(200, Raw(text)), {"body": Raw(text)}):
        with pytest.raises(SerializationError, match=r"^fetch \(output\): ") as refused:
            CODEC.encode(value)
        assert refused.value.kind == type(value).__name__


def test_raw_text_that_is_one_json_value_goes_through_as_it_is() -> None:
    text = ' {"a": [1, "é", "\\u00e9"]}\n'.encode()

    assert CODEC.encode(Raw(text)) == text
    assert CODEC.encode({"body": Raw(text)}) == b'{"body":' + text + b"}"


@pytest.mark.parametrize("text", ["NaN", "1],[2", "", "\ud800"])
def test_what_a_model_makes_of_itself_has_to_be_json(text: str) -> None:
    for value in (Own(text), [Own(text)]):
        with pytest.raises(SerializationError, match="fetch"):
            CODEC.encode(value)


def test_values_are_nested_so_deep_and_no_deeper() -> None:
    deepest = CODEC.encode(nested(DEPTH_MAX))

    assert CODEC.check(deepest) == nested(DEPTH_MAX)
    for value in (nested(DEPTH_MAX + 1), nested(900), Raw(b"[" + deepest + b"]"), [Raw(deepest)]):
        with pytest.raises(SerializationError, match=f"nested deeper than {DEPTH_MAX} levels"):
            CODEC.encode(value)


def test_a_model_is_nested_no_deeper_either() -> None:
    tree = Tree()
    for _ in range(DEPTH_MAX):
        tree = Tree(below=tree)

    with pytest.raises(SerializationError, match=f"nested deeper than {DEPTH_MAX} levels"):
        codec_for("fetch (output)", Tree).encode(tree)


def test_what_holds_itself_is_refused_as_too_deep() -> None:
    circle: list[object] = []
    circle.append(circle)

    with pytest.raises(SerializationError, match="nested deeper"):
        CODEC.encode(circle)


@pytest.mark.parametrize(
    "value",
    [
        [[]] * 5_000,
        [{"name": f"row {number}", "tags": ["a"]} for number in range(5_000)],
        ["[" * 5_000],
        {"[" * 5_000: "]", 'quoted " {': '\\"['},
        [f'{"[" * (number % 9)}"{"}" * (number % 7)}' for number in range(5_000)],
        "[" * 5_000,
    ],
    ids=["wide", "rows", "brackets in a text", "in a name", "in every text", "a text"],
)
def test_many_brackets_are_no_depth(value: object) -> None:
    assert CODEC.check(CODEC.encode(value)) == value


def test_brackets_in_texts_do_not_hide_depth() -> None:
    value: object = None
    for _ in range(DEPTH_MAX + 1):
        value = ["]", value, "["]

    with pytest.raises(SerializationError, match="nested deeper"):
        CODEC.encode(["unbalanced [", value])


@pytest.mark.parametrize(
    ("encoded", "described"),
    [(NO_JSON["very deep"], "nested too deep"), (NO_JSON["latin-1"], "no valid UTF-8")],
    ids=["very deep", "latin-1"],
)
def test_what_cannot_be_read_is_described_in_words_of_ours(encoded: bytes, described: str) -> None:
    with pytest.raises(SerializationError, match=described) as refused:
        CODEC.check(encoded)
    assert "tea" not in str(refused.value)


def test_other_errors_of_a_codec_are_described_by_their_names() -> None:
    assert describe_mismatch(KeyError("secret")) == "KeyError"


@pytest.mark.untraced
@spoiled
def test_a_stage_that_returns_what_is_no_json_has_failed_and_others_go_on(
    store: SqliteStore, rd: Redrive, text: bytes
) -> None:
    def fetch(number: int) -> object:
        return Raw(text) if number else number

    def keep(value: object) -> object:
        return value

    pipeline = Pipeline("shop", [stage(retry=ONCE)(fetch), stage(concurrency=1)(keep)])
    rd.submit_many(pipeline, [0, 1, 1, 0])
    work(store, pipeline)

    assert jobs(store) == [("complete",), ("failed",), ("failed",), ("complete",)]
    assert letters(store) == [("BUG_CODE",)] * 2
    assert "fetch (output)" in str(letters(store, "message"))


@pytest.mark.parametrize("payload", [nested(DEPTH_MAX + 1), nested(990), Raw(NO_JSON["very deep"])])
def test_a_payload_that_is_too_deep_is_refused_at_submit(
    store: SqliteStore, rd: Redrive, payload: object
) -> None:
    pipeline = one_stage(lambda value: value, name="keep")

    with pytest.raises(SerializationError, match="nested deeper"):
        rd.submit(pipeline, payload)
    assert jobs(store) == []


class Line(msgspec.Struct):
    name: str
    amounts: list[float] | None


class Node(msgspec.Struct):
    below: Node | None = None


@dataclass
class Order:
    lines: tuple[Line, ...]
    gift: Line
    note: str = ""


@pytest.mark.parametrize("kind", [int, str, Line, Order, dict[str, Line], list[tuple[int, Line]]])
def test_a_type_that_has_no_place_for_other_text_is_not_looked_at_again(kind: object) -> None:
    assert not codec_for("fetch", kind).is_open


@pytest.mark.parametrize(
    "kind", [None, object, dict, Page, Node, Raw, Tree, list[Tree], dict[str, Any], tuple[Line, Raw]]
)
def test_a_type_that_may_hold_anything_or_itself_is_looked_at(kind: object) -> None:
    assert codec_for("fetch", kind).is_open


def test_raw_text_is_refused_by_a_codec_of_another_type_as_well() -> None:
    with pytest.raises(SerializationError, match="not one JSON value"):
        codec_for("fetch", int).encode(Raw(b"1],[2"))


def test_a_struct_of_its_own_is_not_taken_for_raw_text() -> None:
    assert CODEC.encode(Line("[{", None)) == b'{"name":"[{","amounts":null}'


@dataclass
class Box:
    size: int


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "notint"),
        (float, float("nan")),
        (Box, Box("large")),  # type: ignore[arg-type]
        (list[int], [1, "2"]),
        (dict[str, int], {"a": None}),
        (type(None), 5),
    ],
)
def test_what_a_stage_returns_must_be_of_its_declared_type(kind: object, value: object) -> None:
    with pytest.raises(SerializationError):
        codec_for("pay (output)", kind).seal(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 5), (float, 1), (Box, Box(1)), (str, "x"), (None, object), (object, [1, "a"]), (dict, {"a": 1})],
)
def test_what_fits_is_sealed(kind: object, value: object) -> None:
    if value is object:
        value = {"any": ["thing"]}
    codec = codec_for("pay (output)", kind)

    assert codec.seal(value) == codec.encode(value)
