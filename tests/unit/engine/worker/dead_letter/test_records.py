# SPDX-License-Identifier: Apache-2.0
"""What is written down about attempts and dead letters: settings, counts, reasons, and nothing of the payload."""

from __future__ import annotations

import hmac
import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from redrive import Backoff, Context, Pipeline, Redrive, RetryPolicy, stage
from redrive.core.decide import Reason
from redrive.core.fingerprint import Frame
from redrive.engine.classifier import DEFAULT
from redrive.engine.pipeline.codec import storable
from redrive.engine.worker import dead_letter
from redrive.engine.worker.dead_letter import FailedAttempt, JobRedactor, letter_of, literals_in
from redrive.redaction.process import redact_start
from redrive.store.records import ClaimedJob
from redrive.store.sqlite.store import SqliteStore
from redrive.testing import VirtualClock
from tests.unit.build import STEADY, attempts, jobs, letters, one_stage, work
from tests.unit.engine.worker.letters_made import DECISION, claimed, letter_for

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


def test_hides_strings_numbers_and_keys_from_the_shortest_length_on_that_is_seldom_in_a_text() -> None:
    value = {"lot 4711": ["eight by", 12345678], "lot 471": ["seven b", 1234567]}

    assert literals_in(msgspec.json.encode(value)) == {
        "lot 4711": "<payload:$.0>",
        "eight by": "<payload:$.0[0]>",
        "12345678": "<payload:$.0[1]>",
    }


@pytest.mark.parametrize("after", [", input_type=str]", "\n  For further information", ""])
def test_an_input_that_pydantic_quotes_in_part_is_not_stored(after: str) -> None:
    letter = letter_for(f"bad name [type=x, input_value='half of a va...of a name'{after}", claimed("abc"))

    assert letter.message == f"bad name [type=x, input_value=<payload>{after}"
    assert letter.stack.endswith(f"ValueError: {letter.message}\n")


MENU = "men\udcfc"
CIRCUMSTANCES = {"http_status": 503, "provider_code": "E-17", "request_id": "req-1"}


def context_of(job: ClaimedJob, **changes: object) -> dict[str, object]:
    failure = replace(DEFAULT.classify(ValueError("bad")), **changes)
    redactor = JobRedactor(job, secret=b"of this installation")
    letter = letter_of(FailedAttempt(failure), redactor, "fetch of abcdefgh", DECISION, None)
    return msgspec.json.decode(letter.context, type=dict[str, object])


def test_a_context_tells_the_circumstances_of_a_failure() -> None:
    job = replace(claimed("abcdefgh"), attempt=2, dispatch=5, round=3, payload=b'"first"')
    key = hmac.digest(b"of this installation", job.input, "sha256").hex()[:16]

    assert context_of(job, **CIRCUMSTANCES) == {
        **CIRCUMSTANCES,
        "stage": "fetch of <payload:$[0]>",
        "attempt": 2,
        "dispatch": 5,
        "round": 3,
        "notes": None,
        "input_sha256": key,
    }


@pytest.mark.parametrize("name", ["provider_code", "request_id"])
def test_what_a_provider_says_is_stored_without_values_of_the_job_and_as_text(name: str) -> None:
    told = context_of(claimed("abcdefgh"), **{name: f"no abcdefgh in {MENU}"})

    assert told[name] == f"no <payload:$[0]> in {storable(MENU)}"


def test_a_letter_tells_why_its_job_was_given_up_and_whether_another_attempt_could_help() -> None:
    failure = DEFAULT.classify(ConnectionResetError(104, "reset"))
    decision = replace(DECISION, reason=Reason.EXHAUSTED)
    letter = letter_of(FailedAttempt(failure), JobRedactor(claimed("abc")), "fetch", decision, None)

    assert (letter.is_retryable, letter.reason, letter.category) == (True, Reason.EXHAUSTED, "network")


def test_the_frames_of_a_failure_from_another_process_distinguish_causes() -> None:
    def of(function: str) -> str:
        frames = (Frame("shop", function, 1, is_own=True),)
        failed = FailedAttempt(DEFAULT.classify(ValueError("bad")), stack="as it was", frames=frames)
        return letter_of(failed, JobRedactor(claimed("abc")), "fetch", DECISION, None).fingerprint

    assert of("price") != of("send")


def test_hides_long_numbers_and_keys_that_are_no_names_of_fields() -> None:
    value = {
        "content-type": 1,
        "Ada Lovelace": 1,
        "acct-4711-77": {"amount_in_cents": 48291377, "ratio": 0.125, "share": 0.3333333333},
        "ok": True,
    }

    found = literals_in(msgspec.json.encode(value))

    assert found == {
        "Ada Lovelace": "<payload:$.1>",
        "acct-4711-77": "<payload:$.2>",
        "48291377": "<payload:$.2.0>",
        "0.3333333333": "<payload:$.2.2>",
    }
