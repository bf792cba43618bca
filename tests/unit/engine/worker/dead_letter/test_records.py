# SPDX-License-Identifier: Apache-2.0
"""What is written down about attempts and dead letters: settings, counts, reasons, and nothing of the payload."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from redrive import Backoff, Context, Pipeline, Redrive, RetryPolicy, stage
from redrive.engine.worker import dead_letter
from redrive.engine.worker.dead_letter import literals_in
from redrive.redaction.process import redact_start
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import STEADY, attempts, jobs, letters, one_stage, work

pytestmark = pytest.mark.usefixtures("clock")


def test_an_attempt_records_under_which_settings_it_was_made(store: SqliteStore, rd: Redrive) -> None:
    def call(number: int, ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionResetError(104, "reset")
        return number

    before = one_stage(call, retry=STEADY)
    rd.submit(before, 1)
    work(store, before)
    after = one_stage(call, retry=STEADY, version="2")
    rd.submit(after, 1)
    work(store, after)

    hashes = [str(row[0]) for row in attempts(store, "config")]
    assert hashes == [before.stages[0].config] * 2 + [after.stages[0].config] * 2
    assert hashes[0] != hashes[2]
    assert one_stage(call, retry=STEADY).stages[0].config == hashes[0]


@pytest.mark.parametrize(
    "change",
    [{"timeout": 5}, {"concurrency": 3}, {"idempotent": True}, {"retry": RetryPolicy(2)}, {"version": "7"}],
)
def test_every_setting_is_part_of_the_hash(change: dict[str, Any]) -> None:
    def call(number: int) -> int:
        return number

    assert one_stage(call, **change).stages[0].config != one_stage(call).stages[0].config


def test_failures_are_counted_by_code_through_the_attempts_of_a_stage(
    store: SqliteStore, rd: Redrive
) -> None:
    errors = [
        ConnectionResetError(104, "a"),
        ConnectionRefusedError(111, "b"),
        ConnectionResetError(104, "c"),
    ]
    seen: list[object] = []

    def call(number: int) -> int:
        seen.append(store.read("SELECT codes FROM jobs")[0][0])
        if errors:
            raise errors.pop(0)
        return number

    following = stage(name="following")(
        lambda number: seen.append(store.read("SELECT codes FROM jobs")[0][0])
    )
    pipeline = Pipeline("shop", [stage(retry=RetryPolicy(5, Backoff.fixed(1)))(call), following])
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert [None if raw is None else msgspec.json.decode(raw) for raw in seen] == [  # type: ignore[call-overload]
        None,
        {"NETWORK_RESET": 1},
        {"NETWORK_RESET": 1, "NETWORK_REFUSED": 1},
        {"NETWORK_RESET": 2, "NETWORK_REFUSED": 1},
        None,
    ]


def test_a_code_with_a_limit_of_its_own_ends_the_job_before_its_attempts_are_spent(
    store: SqliteStore, rd: Redrive
) -> None:
    def call(_number: int) -> None:
        raise ConnectionResetError(104, "reset")

    retry = RetryPolicy(9, Backoff.fixed(1), per_code_max_attempts={"NETWORK_RESET": 2})
    pipeline = one_stage(call, retry=retry)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert attempts(store, "outcome, decision ->> '$.reason'") == [
        ("retry", "retryable"),
        ("dead", "code_exhausted"),
    ]


def test_a_string_of_the_payload_appears_nowhere_but_in_the_payload(store: SqliteStore, rd: Redrive) -> None:
    customer, street = "Annabel Lee by the sea", "12 Kingdom Road, Baltimore"

    def call(order: dict[str, object], ctx: Context) -> None:
        ctx.note("who", f"for {customer}")
        ctx.note(street, 1)
        try:
            raise KeyError(customer)
        except KeyError as error:
            raise RuntimeError(f"cannot ship to {street}") from error

    pipeline = one_stage(call)
    rd.submit(pipeline, {"customer": customer, "lines": [{"street": street}], "short": "abc"})
    work(store, pipeline)

    written = str(
        attempts(store, "*")
        + letters(store, "*")
        + jobs(store, "error_code, error_message, progress, waiting")
    )
    assert customer not in written
    assert street not in written
    assert "<payload:$.1[0].0>" in written
    ((context,),) = letters(store, "context")
    assert json.loads(context)["notes"]["who"] == "for <payload:$.0>"  # type: ignore[arg-type]


def test_a_payload_that_holds_our_own_words_leaves_the_names_of_a_context_alone(
    store: SqliteStore, rd: Redrive
) -> None:
    def call(order: list[str], ctx: Context) -> None:
        ctx.note("who", f"for {order[0]}")
        raise ValueError(order[1])

    pipeline = one_stage(call)
    rd.submit(pipeline, ["request_id", "dispatch", "provider_code", "input_sha256"])
    work(store, pipeline)

    ((context,),) = letters(store, "context")
    stored = json.loads(context)  # type: ignore[arg-type]
    names = "stage attempt dispatch http_status provider_code request_id round notes input_sha256".split()
    assert list(stored) == names
    assert stored["notes"] == {"who": "for <payload:$[0]>"}


def test_a_stages_own_input_is_taken_out_as_well(store: SqliteStore, rd: Redrive) -> None:
    def fail(text: str) -> None:
        raise RuntimeError(f"no {text}")

    pipeline = Pipeline("shop", [stage(name="make")(lambda _n: "words of the first stage"), stage(fail)])  # type: ignore[misc]  # a lambda has no types to infer
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert jobs(store, "error_message") == [("no <payload:$>",)]


def test_literals_are_the_longer_strings_of_an_input_by_place_and_only_so_many() -> None:
    assert literals_in(b'{"a": "long enough", "b": ["short", "also long enough"], "c": 1}') == {
        "long enough": "<payload:$.0>",
        "also long enough": "<payload:$.1[1]>",
    }
    assert literals_in(b"no JSON") == {}
    many = msgspec.json.encode([f"a long string {number}" for number in range(5_000)])
    assert len(literals_in(many)) == 5_000


def test_however_many_strings_a_payload_holds_none_of_them_is_stored(store: SqliteStore, rd: Redrive) -> None:
    def complain(names: list[str]) -> None:
        raise ValueError(f"bad records: {names[0]} and {names[-1]}")

    pipeline = one_stage(complain)
    rd.submit(pipeline, [f"name of person {number:05}" for number in range(5_000)])
    work(store, pipeline)

    assert "name of person" not in str(letters(store, "message, stack"))


def test_what_was_in_the_payload_is_not_stored_by_a_later_stage_either(
    store: SqliteStore, rd: Redrive
) -> None:
    def first(payload: dict[str, str]) -> int:
        return len(payload)

    def second(_size: int) -> None:
        raise PermissionError(13, "login failed for ada.lovelace.the.first")

    pipeline = Pipeline("two", [stage(first), stage(second)])
    rd.submit(pipeline, {"login": "ada.lovelace.the.first"})
    work(store, pipeline)

    assert "lovelace" not in str(letters(store, "message, stack"))
    assert "lovelace" not in str(jobs(store, "error_message"))


def test_a_dead_letter_records_when_it_failed_first_and_last(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    def call(_number: int) -> None:
        raise ConnectionResetError(104, "reset")

    start = clock.wall()
    pipeline = one_stage(call, retry=RetryPolicy(3, Backoff.fixed(10)))
    rd.submit(pipeline, 1)
    work(store, pipeline)

    ((first, last, state, round_),) = letters(store, "first_failure_at, last_failure_at, state, round")
    assert (first, last, state, round_) == (start, pytest.approx(start + 20), "open", 1)
    ((fingerprint, exception, category),) = letters(store, "fingerprint, exception, category")
    assert str(fingerprint).startswith("v")
    assert exception == "ConnectionResetError"
    assert category == "network"


def test_what_a_message_quotes_of_the_payload_does_not_distinguish_causes(
    store: SqliteStore, rd: Redrive
) -> None:
    def call(order: list[str]) -> None:
        raise ValueError(f"cannot resolve customer {order[0]} in region {order[1]}")

    pipeline = one_stage(call, retry=RetryPolicy(1))
    rd.submit_many(pipeline, [["Christiane", "Lower Saxony"], ["Bartholomew", "West Yorkshire"]])
    rd.submit(pipeline, ["Bartholomew", "Bartholomew"])
    work(store, pipeline)

    assert letters(store, "count(DISTINCT fingerprint)") == [(1,)]


def test_an_attempt_records_why_it_was_decided_so(store: SqliteStore, rd: Redrive) -> None:
    def call(_number: int) -> None:
        raise ConnectionResetError(104, "reset")

    pipeline = one_stage(call, retry=RetryPolicy(2, Backoff.fixed(10)))
    job = rd.submit(pipeline, 1)
    work(store, pipeline)

    first, second = job.attempts()
    assert first.sentence == "attempt 1 of 2 failed with NETWORK_RESET: again in 10 s (backoff)"
    assert second.sentence == "attempt 2 of 2 failed with NETWORK_RESET: none is left"
    assert (first.worker, first.round, first.http_status) == ("w1", 1, None)


def test_a_dead_letter_decodes_its_payload_and_redacts_its_message_once(
    store: SqliteStore, rd: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    message, payload = "the order of a customer is wrong", {"order": "A-100 for a customer"}
    decoded: list[object] = []
    redacted: list[str] = []
    decode = msgspec.json.decode

    def counted(encoded: bytes, **options: Any) -> object:
        decoded.append(encoded)
        return decode(encoded, **options)

    def counted_text(text: str, *args: Any, **options: Any) -> str:
        redacted.append(text)
        return redact_start(text, *args, **options)

    def call(_order: dict[str, str], ctx: Context) -> None:
        ctx.note("seen", "yes")
        raise ValueError(message)

    monkeypatch.setattr(msgspec.json, "decode", counted)
    monkeypatch.setattr(dead_letter, "redact_start", counted_text)
    pipeline = one_stage(call)
    rd.submit(pipeline, payload)
    work(store, pipeline)

    assert letters(store, "message") == [(message,)]
    assert decoded.count(msgspec.json.encode(payload)) == 1
    assert redacted.count(message) == 1


def test_hides_long_numbers_and_keys_that_are_no_names_of_fields() -> None:
    value = {
        "Ada Lovelace": 1,
        "acct-4711-77": {"amount_in_cents": 48291377, "ratio": 0.125, "share": 0.3333333333},
        "ok": True,
    }

    found = literals_in(msgspec.json.encode(value))

    assert found == {
        "Ada Lovelace": "<payload:$.0>",
        "acct-4711-77": "<payload:$.1>",
        "48291377": "<payload:$.1.0>",
        "0.3333333333": "<payload:$.1.2>",
    }
