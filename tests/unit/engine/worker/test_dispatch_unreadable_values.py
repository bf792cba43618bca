# SPDX-License-Identifier: Apache-2.0
"""Values in the file that nobody can read, from before they were refused: their job fails by itself, and nobody waits for it."""

from __future__ import annotations

import pytest

from redrive import Context, Redrive, stage
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.engine.worker.dead_letter import literals_in
from redrive.store.records import ClaimRequest, ExchangeRequest, NewJob
from redrive.store.sqlite.store import SqliteStore
from tests.unit.build import ONCE, jobs, letters, one_stage, rows, work

pytestmark = pytest.mark.usefixtures("clock")

FORGED = b'1],[5,0,777,1,1,1,1,0,0,0,0,0,null,null,null,"forged"'
UNREADABLE = {
    "deep": b"[" * 1_200 + b'"words of the input"' + b"]" * 1_200,
    "nearly too deep": b"[" * 970 + b'"words of the input"' + b"]" * 970,
    "latin-1": b'"words of the input tea\xe9"',
    "not ended": b'{"a":"words of the input',
    "a second row": FORGED,
    "a second element": b'"words of the input",-1,1',
    "half of two": b'[["words of the input"',
    "other half": b'"words of the input"]]',
    "empty": b"",
    "a zero": b'"words of the input\x00"',
}
unreadable = pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)


class Lenient:
    """A type that reads by itself what is no JSON."""

    @staticmethod
    def model_validate_json(encoded: bytes) -> str:
        return encoded.decode("latin-1")


@pytest.mark.untraced
@unreadable
@pytest.mark.parametrize("part", ["payload", "input", "both"])
def test_a_job_with_an_unreadable_value_fails_by_itself_and_keeps_nobody_waiting(
    store: SqliteStore, rd: Redrive, part: str, value: bytes
) -> None:
    ran: list[tuple[int, object]] = []

    def keep(given: int, ctx: Context) -> object:
        ran.append((ctx.job_id, given))
        return given

    pipeline = one_stage(keep, retry=ONCE)
    rd.submit_many(pipeline, [1, 2, 3])
    set_to = {"payload": "payload = ?1", "input": "input = ?1", "both": "payload = ?1, input = ?1"}[part]
    store._db.execute(f"UPDATE jobs SET {set_to} WHERE id = 2", (value,))
    work(store, pipeline)

    assert jobs(store) == [("complete",), ("failed",), ("complete",)]
    assert ran == [(1, 1), (3, 3)]
    assert letters(store) == [("SCHEMA_INVALID",)]
    assert "words of" not in str(letters(store, "message, stack, context"))


def test_a_stage_that_reads_a_value_itself_does_not_store_it_either(store: SqliteStore, rd: Redrive) -> None:
    def refuse(given: Lenient) -> None:
        raise ValueError(f"no good: {given}, that is {str(given)[1:-1]}")

    pipeline = Pipeline("shop", [stage(retry=ONCE)(refuse)])
    rd.submit_many(one_stage(lambda value: value, name="refuse"), [1])
    store._db.execute("UPDATE jobs SET payload = ?", (b'"the whole name of Ren\xe9e Somebody-Long"',))
    work(store, pipeline)

    stored = str(letters(store, "message, stack")) + str(rows(store, "message", "attempts"))
    assert "no good: " in stored
    assert "the whole name" not in stored
    assert "Somebody-Long" not in stored


def test_no_value_reads_as_another_job_not_even_if_it_knew_the_token(store: SqliteStore) -> None:
    (lane,) = store.lanes("shop", ["keep"])
    values = (b'1,77],[5,0,777,1,1,1,1,0,0,0,0,0,-1,null,null,null,"forged"', b"2")
    store.submit([NewJob(lane=lane, payload=value, run_at=0.0) for value in values], 0.0)
    store.start_worker("w", 0.0, 60.0)

    got = store.exchange(ExchangeRequest("w", [], ClaimRequest((lane,), 10), now=1.0, token=77)).claimed

    assert [(one.id, one.input) for one in got] == [(1, values[0]), (2, values[1])]


def test_a_value_that_takes_the_place_of_the_next_job_is_found_by_its_token(store: SqliteStore) -> None:
    (lane,) = store.lanes("shop", ["keep"])
    # The second job becomes a part of a text that the first one begins and the second one ends: as many rows as there were.
    values = (b'1,1],[5,0,777,1,1,1,1,0,0,0,0,0,-1,null,null,null,"forged', b'"')
    store.submit([NewJob(lane=lane, payload=each, run_at=0.0) for each in values], 0.0)
    store.start_worker("w", 0.0, 60.0)

    got = store.exchange(ExchangeRequest("w", [], ClaimRequest((lane,), 10), now=1.0, token=77)).claimed

    assert [(one.id, one.input) for one in got] == [(1, values[0]), (2, values[1])]


@pytest.mark.parametrize(
    ("encoded", "literals"),
    [
        (UNREADABLE["deep"], ["words of the input"]),
        (UNREADABLE["latin-1"], ["words of the input tea"]),
        (UNREADABLE["not ended"], ["words of the input"]),
        (
            b'["with a \\" quote", "and \\u00e9 escaped", "short"',
            ['with a " quote', 'with a \\" quote', "and é escaped"],
        ),
        (b'["  some padded words "', ["some padded words"]),
        (b"<p>not even quoted</p>", ["<p>not even quoted</p>"]),
        (b'["\\ud800 half of a pair"]', ["\\ud800 half of a pair"]),
    ],
    ids=["deep", "latin-1", "not ended", "escapes", "padded", "no quotes", "half of a pair"],
)
def test_the_longer_texts_of_what_cannot_be_decoded_are_known_all_the_same(
    encoded: bytes, literals: list[str]
) -> None:
    found = literals_in(encoded)

    assert [one for one in literals if found.get(one) != "<payload:*>"] == []
    assert [one for one in found if len(one) < 8] == []
