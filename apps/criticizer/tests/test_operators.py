# SPDX-License-Identifier: Apache-2.0
"""What operators see of a failure, and the way back (CR-4 to CR-6), with the real clients against servers that fail."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from apps.criticizer.pipeline import flow
from apps.criticizer.review import INSTRUCTIONS
from apps.criticizer.settings import Settings
from apps.criticizer.tests.scenes import KEY, answer, order, served
from apps.criticizer.tests.servers import Fault, Upstream, openai_error
from apps.database import database_of
from redrive import Redrive, connect
from redrive.errors import ConfigurationError, EvidenceMissingError
from redrive.store.postgres.store import PostgresStore
from redrive.store.sqlite.store import SqliteStore
from tests.embedded import read_rows

MODEL = "/v1/chat/completions"
PLANTED = "hunter2trooper"
VALUES = {"payload", "input", "result", "value"}
"""Where jobs keep what they work on."""
COLUMNS: dict[type, str] = {
    SqliteStore: "SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'",
    PostgresStore: "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = current_schema()",
}
"""Every column of every table."""


@pytest.fixture
def rd(tmp_path: Path) -> Generator[Redrive]:
    with connect(database_of(tmp_path / "jobs.db")) as opened:
        yield opened


def everything_told(rd: Redrive) -> str:
    """Return every column of every table, but for the values jobs work on, and what is shown to operators."""
    told: list[str] = []
    tables: dict[str, list[str]] = {}
    for table, name in read_rows(rd, COLUMNS[type(rd.store)]):
        tables.setdefault(table, []).extend([name] if name not in VALUES else [])
    for table, columns in tables.items():
        told += [str(row) for row in read_rows(rd, f"SELECT {', '.join(columns)} FROM {table}")]
    stories = [rd.letters.show(line.id) for line in rd.letters.list().letters]
    return "\n".join((*told, *map(str, stories), *(line.decode() for line in rd.letters.export())))


def work(rd: Redrive, settings: Settings) -> None:
    rd.work([served(settings)], until_idle=True)


def failed(rd: Redrive, upstream: Upstream, settings: Settings, *, times: int = 1) -> list[int]:
    """Let reviews fail because the key is wrong; return their jobs."""
    jobs = [rd.submit(flow, order(upstream)).id for _ in range(times)]
    refusal = openai_error(
        "invalid_request_error", code="invalid_api_key", message=f"Incorrect API key: {KEY}"
    )
    upstream.fail(MODEL, Fault(401, body=refusal), times=times)
    work(rd, settings)
    return jobs


@pytest.mark.req("CR-4.3")
@pytest.mark.parametrize("failing", ["status", "answer", "refusal", "cut", "notify"])
def test_no_prompt_no_answer_and_no_secret_is_told_anywhere(
    rd: Redrive,
    upstream: Upstream,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    failing: str,
) -> None:
    """The server quotes the prompt in everything it says; all loggers are at their most talkative."""
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
        caplog.set_level(logging.DEBUG, name)
    job = order(upstream)
    echo = f"{INSTRUCTIONS} password = {PLANTED!r} return eval(sum(prices))"
    if failing == "status":
        upstream.fail(MODEL, Fault(400, body=openai_error("invalid_request_error", message=f"bad: {echo}")))
    elif failing == "answer":
        upstream.say(json.dumps({"version": echo, "findings": [echo]}))
    elif failing == "refusal":
        upstream.say(None, refusal=f"I cannot review: {echo}")
    elif failing == "cut":
        upstream.say(answer(echo)[:-9], finish_reason="length")
    else:
        upstream.fail("/hook", Fault(400, body={"message": echo}))
    rd.submit(flow, job)
    work(rd, settings)

    sent = upstream.asked[MODEL][0].body.decode()
    assert PLANTED not in sent
    assert "<redacted:password>" in sent
    assert len(rd.letters.list().letters) == 1
    everything = everything_told(rd) + caplog.text
    for secret in (PLANTED, KEY, "eval(", "You review a change", "sum(prices)", settings.webhook_url):
        assert secret not in everything


@pytest.mark.req("CR-4.1", "CR-4.2", "CR-4.3")
def test_a_dead_letter_holds_what_an_operator_needs(
    rd: Redrive, upstream: Upstream, settings: Settings
) -> None:
    failed(rd, upstream, settings)
    story = rd.letters.show(1)
    letter = story.letter

    assert (letter.stage, letter.code, letter.category) == ("llm", "AUTH_INVALID", "auth")
    assert (letter.error_class, letter.exception) == ("AUTH_INVALID", "openai.AuthenticationError")
    assert letter.first_failure_at == letter.last_failure_at
    assert letter.message == "the model's server answered 401"
    assert "in llm" in letter.last_stack
    context = cast("dict[str, object]", letter.sanitized_context)
    assert (context["http_status"], context["provider_code"], context["attempt"]) == (
        401,
        "invalid_api_key",
        1,
    )
    assert (context["request_id"], len(str(context["input_sha256"]))) == ("req_42", 16)
    assert KEY not in str(story)


@pytest.mark.req("CR-5.1", "CR-5.2", "CR-5.3")
def test_a_replay_needs_a_diagnosis_evidence_and_a_confirmation(
    rd: Redrive, upstream: Upstream, settings: Settings
) -> None:
    (job,) = failed(rd, upstream, settings)
    assert rd.letters.show(1).suggested_diagnosis == "auth_config"
    chosen = rd.letters.choose(ids=[1])

    rd.letters.triage(chosen, diagnosis="auth_config", actor="ann", reason="the key has expired")
    with pytest.raises(EvidenceMissingError, match="no evidence"):
        rd.replays.start(pipeline="criticizer")
    with pytest.raises(EvidenceMissingError):
        rd.jobs.retry(job)
    with pytest.raises(ConfigurationError, match="must be confirmed"):
        rd.letters.remediate(chosen, evidence="renewed the key, OPS-12", is_safe=False)
    rd.letters.remediate(chosen, evidence="renewed the key, OPS-12", is_safe=True, actor="ann")

    story = rd.letters.show(1)
    assert (story.letter.state, story.letter.diagnosis) == ("ready", "auth_config")
    assert (story.letter.evidence, story.letter.is_safe) == ("renewed the key, OPS-12", True)
    assert [(each.verb, each.actor) for each in story.operations] == [("triage", "ann"), ("remediate", "ann")]
    assert upstream.effects == {}


@pytest.mark.req("CR-5.4", "CR-5.5")
def test_a_replay_starts_at_the_failed_stage_and_is_verified_and_closed(
    rd: Redrive, upstream: Upstream, settings: Settings
) -> None:
    jobs = failed(rd, upstream, settings, times=3)
    rd.letters.remediate(
        rd.letters.choose(pipeline="criticizer"),
        evidence="renewed the key",
        is_safe=True,
        diagnosis="auth_config",
    )
    assert rd.letters.validate(pipelines=[flow], pipeline="criticizer").is_fine

    replay = rd.replays.start(pipeline="criticizer", reason="the key was renewed")
    work(rd, settings)
    report = rd.replays.status(replay.id)
    closed = rd.replays.close(replay.id, note="three reviews were sent")

    assert (report.status, report.recovered, report.verified) == ("done", 3, 3)
    assert closed.note == "three reviews were sent"
    assert (upstream.calls("/change.patch"), upstream.calls(MODEL)) == (3, 6)
    assert {key.rpartition("-")[2] for key in upstream.effects} == {f"{job}:notify" for job in jobs}
    assert {rd.letters.show(number).letter.state for number in (1, 2, 3)} == {"resolved"}


@pytest.mark.req("CR-5.4")
def test_a_full_restart_happens_only_when_it_is_asked_for(
    rd: Redrive, upstream: Upstream, settings: Settings
) -> None:
    (job,) = failed(rd, upstream, settings)
    rd.letters.remediate(
        rd.letters.choose(pipeline="criticizer"),
        evidence="renewed",
        is_safe=True,
        diagnosis="auth_config",
    )

    rd.jobs.retry(job, from_start=True)
    work(rd, settings)

    assert (rd.job(job).status, upstream.calls("/change.patch")) == ("complete", 2)


@pytest.mark.req("CR-6.1")
def test_a_replay_that_meets_the_same_permanent_failure_is_escalated(
    rd: Redrive, upstream: Upstream, settings: Settings
) -> None:
    (job,) = failed(rd, upstream, settings)
    rd.letters.remediate(
        rd.letters.choose(pipeline="criticizer"),
        evidence="renewed",
        is_safe=True,
        diagnosis="auth_config",
    )
    upstream.fail(MODEL, Fault(401, body=openai_error("invalid_request_error", code="invalid_api_key")))
    replay = rd.replays.start(pipeline="criticizer")
    work(rd, settings)

    first, second = rd.letters.show(1).letter, rd.letters.show(2).letter
    assert (first.state, first.outcome) == ("returned", "same")
    assert (second.state, second.is_escalated, second.follows) == ("open", True, 1)
    assert rd.replays.status(replay.id).status == "done"
    assert (rd.job(job).status, upstream.calls(MODEL)) == ("failed", 2)


@pytest.mark.req("CR-5.4")
def test_the_target_of_a_notification_can_be_corrected_for_a_replay(
    rd: Redrive, upstream: Upstream, settings: Settings
) -> None:
    upstream.fail("/gone", 404)
    job = rd.submit(flow, order(upstream, f"webhook:{upstream.url}/gone"))
    work(rd, settings)
    right = [{"op": "replace", "path": "/notify/0", "value": f"webhook:{upstream.url}/hook"}]
    rd.letters.edit(1, patch=json.dumps(right).encode(), pipeline=flow, actor="ann")
    rd.letters.remediate(
        rd.letters.choose(ids=[1]), evidence="the new address", is_safe=True, diagnosis="data"
    )
    rd.jobs.retry(job.id)
    work(rd, settings)

    assert (rd.job(job.id).status, upstream.calls(MODEL)) == ("complete", 1)
    assert (upstream.calls("/gone"), upstream.calls("/hook")) == (1, 1)
