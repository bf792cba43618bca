# SPDX-License-Identifier: Apache-2.0
"""Letters carried from one installation to another: redacted, each once, and replayed there."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import asdict
from typing import Any, cast

import msgspec
import pytest

from redrive import ConfigurationError, Fail, Pipeline, Redrive, RetryPolicy, connect, stage
from redrive.core.replay import ReplayRules
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.release import batch_of, obstacle_to, release_steps, start_value
from redrive.errors import ReplayRefusedError
from redrive.ops.audit import Actor, operations
from redrive.ops.jobs import inspect
from redrive.ops.jobs.erase import erase
from redrive.ops.jobs.facts import Attempt
from redrive.ops.letters import imports, triage
from redrive.ops.letters.details import get_letter
from redrive.ops.letters.edit import edit, value_for_edit
from redrive.ops.letters.exports import export
from redrive.ops.letters.freeze import freeze
from redrive.ops.letters.imports import import_letters
from redrive.sinks.base import SunkLetter
from redrive.store.statements import release as release_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.testing import virtual_time
from tests.databases import Address
from tests.embedded import table_rows

ANN = Actor("ann", "a test")
THEN = "2020-01-01T00:00:00Z"
ATTEMPT = {
    "dispatch": 1,
    "stage": "check",
    "round": 1,
    "attempt": 1,
    "outcome": "dead",
    "started_at": THEN,
    "ended_at": THEN,
}
ALL = LetterFilter()


@stage
def take(text: str) -> str:
    return text


@stage(retry=RetryPolicy(1))
def check(text: str) -> str:
    if text.startswith("bad"):
        raise KeyError(text)
    return text


SHOP = Pipeline("shop", [take, check])
OPEN_SHOP = Pipeline("shop", [take, check], replay=ReplayRules(export="include"))


@pytest.fixture
def here(address: Address) -> Generator[Redrive]:
    with virtual_time(), connect(address("here")) as opened:
        yield opened


@pytest.fixture
def there(address: Address) -> Generator[Redrive]:
    with connect(address("there")) as opened:
        yield opened


@stage
def refuse(text: str) -> str:
    raise Fail("REJECTED_POLICY", "not for us")


def test_a_letter_has_the_same_names_wherever_it_is_read(here: Redrive) -> None:
    class Kept:
        name = "kept"

        def __init__(self) -> None:
            self.letters: list[SunkLetter] = []

        def deliver(self, letter: SunkLetter) -> None:
            self.letters.append(letter)

    kept = Kept()
    flow = Pipeline("refusals", [refuse], sinks=[kept])
    here.submit(flow, "x")
    here.work([flow], until_idle=True)

    shown = asdict(here.letters.show(1).letter)
    exported = json.loads(lines(here)[0])["letter"]
    sunk = msgspec.structs.asdict(kept.letters[0])

    for names in (shown, exported, sunk):
        assert (names["error_class"], names["exception"]) == ("REJECTED_POLICY", "redrive.Fail")
        assert "in refuse" in names["last_stack"]
        assert names["sanitized_context"]["stage"] == "refuse"
        assert not {"stack", "context"} & set(names)


def fail(rd: Redrive, *texts: str, pipeline: Pipeline = SHOP, **options: Any) -> None:
    for text in texts:
        rd.submit(pipeline, text, **options)
    rd.work([pipeline], until_idle=True)


def lines(rd: Redrive, which: LetterFilter = ALL, *, with_values: bool = False) -> list[bytes]:
    return list(export(rd.store, which, with_values=with_values))


def changed(line: bytes, path: str, value: object) -> bytes:
    told = json.loads(line)
    *parents, last = path.split(".")
    place = told
    for parent in parents:
        place = place[parent]
    place[last] = value
    return json.dumps(told).encode()


def replay(rd: Redrive, *, from_start: bool = False) -> str:
    batch = batch_of(rd.store.query(release_sql.replay_candidates(ids=[1], from_start=from_start)))
    (candidate,) = batch.candidates
    obstacle = obstacle_to(candidate, start_value(rd.store, candidate), SHOP, from_start=from_start)
    if obstacle is not None:
        return obstacle.kind
    first = rd.store.lanes("shop", ["take", "check"])[0] if from_start else None
    assert rd.store.apply(*release_steps(rd.store, batch, replay=None, first_lane=first, now=0.0)) is not None
    rd.work([SHOP], until_idle=True)
    return rd.job(1).status


def test_a_line_tells_the_whole_story_without_values(here: Redrive) -> None:
    fail(here, "bad token-of-mine", owner="ann", key="k1")
    triage.triage(here.store, freeze(here.store, ALL), Actor("bob", "mail ann@example.com"), diagnosis="data")
    triage.note(here.store, freeze(here.store, LetterFilter(ids=(1,))), ANN, text="seen")

    (line,) = lines(here)

    told = json.loads(line)
    assert line.endswith(b"\n")
    assert [told["redrive_export"], told["origin"]] == [1, *here.store.query(transfer_sql.installation())]
    assert (told["letter"]["code"], told["letter"]["diagnosis"]) == ("BUG_CODE", "data")
    assert (told["job"]["pipeline"], told["job"]["stage"], told["job"]["position"]) == ("shop", "check", 1)
    assert (told["job"]["key"], told["job"]["owner"]) == ("k1", "ann")
    assert [each["outcome"] for each in told["attempts"]] == ["ok", "dead"]
    assert [each["verb"] for each in told["operations"]] == ["triage", "note"]
    assert told["values"] is None
    assert b"token-of-mine" not in line
    assert b"example.com" not in line


def test_names_that_are_personal_do_not_leave(here: Redrive) -> None:
    fail(here, "bad", owner="ann@example.com", key="ann@example.com")

    job = json.loads(lines(here)[0])["job"]

    assert (job["key"], job["owner"]) == (None, None)


def test_values_leave_only_where_the_code_says_so(here: Redrive) -> None:
    fail(here, "bad")

    with pytest.raises(
        ConfigurationError, match=r"ReplayRules\.export of shop does not allow an export of the values"
    ):
        export(here.store, ALL, with_values=True)
    fail(here, "bad too", pipeline=OPEN_SHOP)

    assert [json.loads(line)["values"] for line in lines(here, with_values=True)] == [
        {"payload": "bad", "input": "bad"},
        {"payload": "bad too", "input": "bad too"},
    ]
    assert all(json.loads(line)["values"] is None for line in lines(here))
    erase(here.store, 1, ANN)
    assert json.loads(lines(here, with_values=True)[0])["values"] is None


def test_an_export_is_frozen_when_it_begins(here: Redrive) -> None:
    fail(here, "bad", "bad")
    begun = export(here.store, LetterFilter(pipeline="shop"))
    fail(here, "bad")

    assert [json.loads(line)["letter"]["id"] for line in begun] == [1, 2]


def imported_attempt(here: Redrive, there: Redrive, given: dict[str, object]) -> Attempt:
    """Import a letter with one attempt, about which this is known; return what is kept of the attempt."""
    fail(here, "bad")
    line = json.loads(lines(here)[0])
    at = line["letter"]["last_failure_at"]
    line["attempts"] = [{**ATTEMPT, "started_at": at, "ended_at": at, **given}]
    assert import_letters(there.store, [json.dumps(line).encode()], ANN).refused == []
    origin = inspect.origin_of(there.store, 1)
    assert origin is not None
    return origin.attempts[0]


@pytest.mark.parametrize(
    ("given", "decision"),
    [
        ({"reason": "told_delay", "sentence": "s"}, {"kind": "old", "reason": "retry_after", "text": "s"}),
        ({"reason": "told_delay"}, {"kind": "old", "reason": "retry_after"}),
        ({"reason": "the worker died"}, {"kind": "ended", "reason": "worker_lost"}),
        ({"reason": "overran"}, {"kind": "ended", "reason": "overran"}),
        ({"reason": "odd"}, {"kind": "old", "reason": "odd"}),
        ({"decision": {"kind": "old", "reason": "told_delay"}}, {"kind": "old", "reason": "retry_after"}),
        ({}, None),
    ],
)
def test_attempts_of_an_old_export_are_kept_with_a_decision(
    here: Redrive, there: Redrive, given: dict[str, object], decision: dict[str, str] | None
) -> None:
    kept = imported_attempt(here, there, given)

    assert kept.decision == decision
    if "reason" in given:
        assert decision is not None
        assert kept.reason == decision["reason"]


def test_a_sentence_of_an_old_decision_is_kept_as_long_as_a_message(here: Redrive, there: Redrive) -> None:
    sentence = "it failed " * 100
    old = {"kind": "old", "reason": "odd " * 100, "text": sentence}

    kept = cast("dict[str, str]", imported_attempt(here, there, {"decision": old}).decision)

    assert (kept["text"], len(kept["reason"])) == (sentence, imports.WORD_MAX)


def test_a_letter_is_brought_in_once_and_can_be_looked_at(here: Redrive, there: Redrive) -> None:
    fail(here, "bad", "bad", owner="ann", key=None)
    exported = lines(here)

    first = import_letters(there.store, [*exported, exported[0], b"\n"], ANN)
    second = import_letters(there.store, exported, ANN)

    assert (first.made, first.known, first.refused) == (2, 1, [])
    assert (second.made, second.known, second.refused) == (0, 2, [])
    story = inspect.job_details(there.store, 1)
    assert (story.facts.status, story.facts.stage, story.facts.owner) == ("failed", "check", "ann")
    assert story.facts.error_code == "BUG_CODE"
    assert story.letters[0].state == "open"
    assert cast("dict[str, Any]", story.letters[0].sanitized_context)["imported"]["attempts"] == 2
    assert freeze(there.store, ALL).by_state == {"open": 2}
    assert inspect.counts(there.store)[("shop", "check")] == {"failed": 2}
    log = [(each.verb, each.subject, each.letters) for each in operations(there.store)]
    assert log == [("import", f"origin {json.loads(exported[0])['origin']}", 2)]


def test_an_own_letter_that_is_still_here_is_known(here: Redrive) -> None:
    fail(here, "bad")

    assert import_letters(here.store, lines(here), ANN).known == 1
    assert freeze(here.store, ALL).count == 1


@pytest.mark.parametrize("text", ["bad", "bad " * 3_000])
def test_a_letter_with_values_is_replayed_elsewhere(here: Redrive, there: Redrive, text: str) -> None:
    fail(here, text, pipeline=OPEN_SHOP)
    assert import_letters(there.store, lines(here, with_values=True), ANN).made == 1

    edit(there.store, 1, ANN, value=b'"good"', pipeline=SHOP)

    assert replay(there) == "complete"


def test_input_and_payload_that_differ_are_both_brought_in(here: Redrive, there: Redrive) -> None:
    fail(here, "bad", pipeline=OPEN_SHOP)
    large = "good " * 2_000
    (line,) = lines(here, with_values=True)
    line = changed(changed(line, "values.input", large), "values.payload", large + "!")

    assert import_letters(there.store, [line], ANN).made == 1

    edit(there.store, 1, ANN, value=json.dumps(large + "?").encode(), pipeline=SHOP)
    assert replay(there) == "complete"
    assert there.job(1).result() == large + "?"


@pytest.mark.parametrize("size", [4, 10_000])
def test_a_letter_without_values_is_replayed_once_an_edit_supplies_them(
    here: Redrive, there: Redrive, size: int
) -> None:
    fail(here, "bad")
    import_letters(there.store, lines(here), ANN)
    assert replay(there) == "erased"
    assert value_for_edit(there.store, 1) == "null"

    with pytest.raises(ReplayRefusedError, match="it was imported without values"):
        edit(there.store, 1, ANN, patch=b"[]")
    edit(there.store, 1, ANN, value=json.dumps("g" * size).encode(), pipeline=SHOP)

    assert inspect.job_details(there.store, 1).facts.erased_at is None
    assert replay(there, from_start=True) == "erased"
    assert replay(there) == "complete"
    assert there.job(1).result() == "g" * size


@pytest.mark.parametrize("size", [4, 10_000])
def test_a_supplied_payload_is_replayed_from_the_start(here: Redrive, there: Redrive, size: int) -> None:
    fail(here, "bad")
    import_letters(there.store, lines(here), ANN)

    edit(there.store, 1, ANN, part="payload", value=json.dumps("g" * size).encode(), pipeline=SHOP)

    assert replay(there, from_start=True) == "complete"


def test_what_was_erased_after_it_was_supplied_stays_erased(here: Redrive, there: Redrive) -> None:
    fail(here, "bad")
    import_letters(there.store, lines(here), ANN)
    edit(there.store, 1, ANN, value=b'"good"')
    erase(there.store, 1, ANN)

    with pytest.raises(ReplayRefusedError, match="were erased"):
        edit(there.store, 1, ANN, value=b'"good"')
    assert replay(there) == "erased"


def test_a_lane_that_is_there_keeps_its_place(here: Redrive, there: Redrive) -> None:
    there.submit(SHOP, "good")
    fail(here, "bad")

    import_letters(there.store, [changed(lines(here)[0], "job.position", 0)], ANN)

    (told,) = lines(there)
    assert (json.loads(told)["job"]["stage"], json.loads(told)["job"]["position"]) == ("check", 1)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("redrive_export", 2, "its format is 2, and this redrive reads 1"),
        ("origin", "../etc", "origin is not valid"),
        ("letter.id", 0, "letter.id"),
        ("letter.id", "x", "$.letter.id"),
        ("letter.id", 2**63, "letter.id"),
        ("job.id", 0, "job.id"),
        ("attempts", [{}], "attempts[0]: Object missing required field"),
        ("attempts", [{**ATTEMPT, "outcome": "odd"}], "attempts[0]: Invalid enum value"),
        ("attempts", [{**ATTEMPT, "ended_at": "2999-01-01T00:00:00Z"}], "attempts[0]: its instants"),
        ("letter.fingerprint", "v1:" + "z" * 9, "letter.fingerprint"),
        ("letter.code", "A B", "letter.code"),
        ("letter.category", "weather", "letter.category"),
        ("letter.last_failure_at", "2999-01-01T00:00:00Z", "letter.last_failure_at"),
        ("letter.first_failure_at", "2020-01-01T00:00:00", "letter.first_failure_at"),
        ("letter.sanitized_context", [], "$.letter.sanitized_context"),
        ("job.pipeline", " ", "job.pipeline must be a name"),
        ("job.stage", "s" * 500, "job.stage must be a name"),
        ("job.priority", 10, "job.priority"),
        ("job.position", -1, "job.position"),
        ("job.created_at", 5, "$.job.created_at"),
    ],
)
def test_a_wrong_line_is_refused_by_its_number_and_the_rest_goes_on(
    here: Redrive, there: Redrive, path: str, value: object, words: str
) -> None:
    fail(here, "bad", "bad")
    good, other = lines(here)

    done = import_letters(there.store, [good, changed(other, path, value)], ANN)

    ((number, why),) = done.refused
    assert (done.made, number) == (1, 2)
    assert any(word in why for word in words.split("|"))


def test_letters_that_are_over_where_they_come_from_are_counted_and_no_mistake(
    here: Redrive, there: Redrive
) -> None:
    fail(here, "bad", "bad", "bad")
    first, second, third = lines(here)
    over = [changed(first, "letter.state", "resolved"), changed(second, "letter.state", "resolved")]

    done = import_letters(there.store, [*over, third, b"garbage"], ANN)

    assert (done.made, done.over, done.lines) == (1, {"resolved": 2}, 4)
    assert [number for number, _ in done.refused] == [4]


@pytest.mark.parametrize(
    "garbage", [b"garbage", b"\xff\xfe", b"{}", b"[]", b"[" * 100_000, b'{"redrive_export": 1']
)
def test_garbage_is_refused_by_its_number(there: Redrive, garbage: bytes) -> None:
    done = import_letters(there.store, [b"\n", garbage], ANN)

    assert (done.made, [number for number, _ in done.refused]) == (0, [2])
    assert "it is not a line of an export" in done.refused[0][1]


def test_values_that_are_no_text_are_refused(here: Redrive, there: Redrive) -> None:
    fail(here, "bad", pipeline=OPEN_SHOP)
    line = lines(here, with_values=True)[0].replace(b'"input":"bad"', b'"input":"\xff"')

    done = import_letters(there.store, [line], ANN)

    assert (done.made, len(done.refused)) == (0, 1)


def test_a_line_that_is_too_long_is_refused(there: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "LINE_MAX", 10)

    assert "10 is the most" in import_letters(there.store, [b"x" * 11], ANN).refused[0][1]


def test_what_others_wrote_is_redacted_again_and_cut(here: Redrive, there: Redrive) -> None:
    fail(here, "bad", pipeline=OPEN_SHOP)
    (line,) = lines(here, with_values=True)
    for path, value in (
        ("letter.message", "password=hunter2hunter2 " + "x" * 5_000),
        ("letter.last_stack", "mail ann@example.com"),
        ("letter.reason", "the value was a-value-of-theirs"),
        ("letter.sanitized_context", {"notes": "mail ann@example.com", "huge": "y" * 100}),
        ("values.input", "a-value-of-theirs"),
        ("job.key", "ann@example.com"),
    ):
        line = changed(line, path, value)

    assert import_letters(there.store, [line], ANN).made == 1

    stored = f"{table_rows(there, 'dead_letters')} {table_rows(there, 'jobs', 'error_message, key')}"
    assert "hunter2" not in stored
    assert "example.com" not in stored
    assert "a-value-of-theirs" not in stored
    assert len(get_letter(there.store, 1).message) <= 2_048


def test_a_context_that_is_too_large_is_left_out(here: Redrive, there: Redrive) -> None:
    fail(here, "bad")
    line = changed(lines(here)[0], "letter.sanitized_context", {"huge": ["y z"] * 40_000})

    import_letters(there.store, [line], ANN)

    context = inspect.job_details(there.store, 1).letters[0].sanitized_context
    assert list(cast("dict[str, object]", context)) == ["imported"]


def test_what_the_store_does_not_take_is_refused_alone(
    here: Redrive, there: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(here, "bad", "bad", "bad")
    exported = lines(here)
    import_letters(there.store, exported[:1], ANN)
    monkeypatch.setattr(imports, "_is_known", lambda *_: False)

    done = import_letters(there.store, exported, ANN)

    assert (done.made, [number for number, _ in done.refused]) == (2, [1])
    assert "the store refused it" in done.refused[0][1]
    assert freeze(there.store, ALL).count == 3


def test_a_long_import_goes_in_steps(here: Redrive, there: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(here, *["bad"] * 5)
    monkeypatch.setattr(imports, "STEP", 2)

    assert import_letters(there.store, lines(here), ANN).made == 5
    assert [each.letters for each in operations(there.store)] == [2, 2, 1]


def test_a_letter_that_somebody_else_brings_in_at_the_same_time_is_known(
    here: Redrive, there: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(here, "bad")
    exported = lines(here)
    asked = imports._is_known
    answers: list[bool] = []

    def late(*given: Any) -> bool:
        if not answers:
            monkeypatch.setattr(imports, "_is_known", asked)
            import_letters(there.store, exported, Actor("bob"))
            monkeypatch.setattr(imports, "_is_known", late)
        answers.append(bool(answers) and asked(*given))
        return answers[-1]

    monkeypatch.setattr(imports, "_is_known", late)
    done = import_letters(there.store, exported, ANN)

    assert (done.made, done.known, done.refused) == (0, 1, [])
    assert freeze(there.store, ALL).count == 1


def test_a_line_of_which_a_part_does_not_fit_is_refused(
    here: Redrive, there: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(here, "bad")
    monkeypatch.setattr(there.store, "apply", lambda *_: None)

    assert "did not fit" in import_letters(there.store, lines(here), ANN).refused[0][1]
