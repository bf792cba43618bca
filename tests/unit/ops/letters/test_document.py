# SPDX-License-Identifier: Apache-2.0
"""Edits and imports take no value that is nested deeper than the engine reads, and say where it is and what to do."""

from __future__ import annotations

import json

import pytest

from redrive import Pipeline, Redrive, ReplayRules, RetryPolicy, connect, stage
from redrive.engine.pipeline.codec import DEPTH_MAX
from redrive.errors import ConfigurationError, SerializationError
from redrive.ops.letters.document import too_deep
from tests.databases import Address
from tests.embedded import changing


@stage(retry=RetryPolicy(1))
def look(tree: object) -> str:
    raise PermissionError("no light")


WOOD = Pipeline("wood", [look], replay=ReplayRules(evidence="optional", export="include"))


@pytest.fixture(autouse=True)
def _failed_tree(rd: Redrive) -> None:
    rd.submit(WOOD, {"tree": {"leaf": 1}})
    rd.work([WOOD], until_idle=True)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"1" + b"]" * levels


def tree(levels: int) -> bytes:
    """Return a value of so many levels, two of which are those of the objects around it."""
    return b'{"age": 5, "tree": {"~/": 1, "leaf": %s}}' % nested(levels - 2)


def test_what_is_as_deep_as_it_may_be_is_taken(rd: Redrive, address: Address) -> None:
    rd.letters.edit(1, value=tree(DEPTH_MAX))
    (line,) = rd.letters.export(with_values=True)

    with connect(address("there")) as there:
        assert there.letters.import_([line]).made == 1


@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 900, 100_000])
def test_an_edit_that_is_too_deep_names_the_place_and_the_way_out(rd: Redrive, levels: int) -> None:
    with pytest.raises(SerializationError) as refused:
        rd.letters.edit(1, value=tree(levels))

    assert "nested deeper than 200 levels, below /tree/leaf/0/0/0/0/..." in str(refused.value)
    assert "keep the deep part as a text" in str(refused.value)


def test_a_patch_that_makes_a_value_too_deep_is_refused(rd: Redrive) -> None:
    value = nested(DEPTH_MAX - 2)
    patch = b'[{"op": "replace", "path": "/tree", "value": {"wood": %s}}]'

    rd.letters.edit(1, patch=patch % value)
    with pytest.raises(SerializationError, match=r"below /tree/wood/0/0/0/0/\.\.\."):
        rd.letters.edit(1, patch=patch % nested(DEPTH_MAX - 1))


def test_a_deep_value_that_was_stored_earlier_is_replaced_as_a_whole(rd: Redrive) -> None:
    with changing(rd) as db:
        db.execute("UPDATE jobs SET payload = ?", (tree(900),))

    with pytest.raises(ConfigurationError, match="give the whole value instead"):
        rd.letters.edit(1, patch=b'[{"op": "replace", "path": "/tree", "value": 1}]')
    assert rd.letters.edit(1, value=b'{"tree": 1}').id == 1


@pytest.mark.parametrize("part", ["payload", "input", "edits[0].before", "edits[0].after"])
@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 800])
def test_a_line_with_a_value_that_is_too_deep_is_refused_by_its_number(
    rd: Redrive, address: Address, part: str, levels: int
) -> None:
    rd.letters.edit(1, value=b'{"tree": 2}')
    (line,) = rd.letters.export(with_values=True)
    told = json.loads(line)
    place = told["values"]["edits"][0] if "." in part else told["values"]
    place[part.rpartition(".")[2]] = "HERE"
    wrong = json.dumps(told).encode().replace(b'"HERE"', tree(levels))

    with connect(address("there")) as there:
        done = there.letters.import_([b"\n", wrong])
        again = there.letters.import_([line])

    ((number, why),) = done.refused
    assert (done.made, number, again.made) == (0, 2, 1)
    assert f"values.{part}: it is nested deeper than 200 levels, below /tree/leaf/0" in why
    assert "export it without its values" in why


def test_a_line_that_no_decoder_takes_says_that_it_is_too_deep(rd: Redrive) -> None:
    (line,) = rd.letters.export(with_values=True)
    told = json.loads(line)
    told["values"]["payload"] = "HERE"

    done = rd.letters.import_([json.dumps(told).encode().replace(b'"HERE"', nested(100_000))])

    assert "nested deeper than 200 levels, below /values/payload/0/0/0/0/..." in done.refused[0][1]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (b'{"a": [1, {"b": "x, [{"}, %s]}', "/a/2/0/0/0/0/..."),
        (b'[[1, 2], {"k\\"]": [], "x/y~": %s}]', "/1/x~1y~0/0/0/0/0/..."),
        (b'{"AKIAIOSFODNN7EXAMPLE": %s}', "/<redacted:"),
        (b'{"%s": %%s}' % (b"n" * 5_000), f"/{'n' * 60}/0/0/0/0/0/..."),
    ],
)
def test_a_place_is_told_as_a_pointer_without_secrets(value: bytes, place: str) -> None:
    told = too_deep(value % nested(300))

    assert told is not None
    assert f"below {place}" in told


def test_brackets_in_texts_are_no_levels() -> None:
    assert too_deep(json.dumps(["[" * 500, {"{" * 500: "[{" * 500}]).encode()) is None
