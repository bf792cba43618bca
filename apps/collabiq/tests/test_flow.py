# SPDX-License-Identifier: Apache-2.0
"""The flow of the specification, from the breaker to the dead letter and back, over the wire and in virtual time."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from apps.collabiq.files import PROCESSED, files_of
from apps.collabiq.records import DLQStatus
from apps.collabiq.settings import Settings
from apps.collabiq.tests.driving import mail, work_off, write_mailbox
from apps.collabiq.tests.services import Gemini, Gmail, Notion
from apps.collabiq.tests.wire import Fault
from redrive import Redrive
from redrive.errors import ReplayRefusedError
from redrive.testing import VirtualClock


def records(settings: Settings) -> list[dict[str, object]]:
    lines = [
        line for path in sorted(settings.root.glob("logs/*/*.json")) for line in path.read_text().splitlines()
    ]
    return sorted((json.loads(line) for line in lines), key=lambda each: str(each["timestamp"]))


@pytest.fixture
def asking(settings: Settings, gemini: Gemini) -> Settings:
    """Settings that use Gemini, and nothing else remote."""
    return replace(settings, extractor="gemini", gemini_url=gemini.url)


@pytest.mark.req("CQ-5.1", "CQ-1.1", "CQ-1.2")
def test_each_failure_leaves_a_record_and_the_last_one_a_dead_letter(
    asking: Settings, rd: Redrive, clock: VirtualClock, gemini: Gemini
) -> None:
    write_mailbox(asking, [mail("One"), mail("Two")])
    gemini.only = "Subject: One"
    gemini.faults.extend([503, "drop", 500])

    failed, passed = work_off(asking, rd)

    assert (failed.status, passed.status) == ("failed", "complete")
    first, second, last = records(asking)
    assert [each["severity"] for each in (first, second, last)] == ["WARNING", "WARNING", "ERROR"]
    assert {each["category"] for each in (first, second, last)} == {"TRANSIENT"}
    assert [each["retry_count"] for each in (first, second, last)] == [0, 1, 2]
    assert [each["http_status"] for each in (first, second, last)] == [503, None, 500]
    assert first["error_type"] == last["error_type"] == "google.genai.errors.ServerError"
    assert str(second["error_type"]).endswith("RemoteProtocolError")
    assert all("google/genai" in str(each["stack_trace"]) for each in (first, second, last))
    context = {"email_id": failed.facts.key, "operation": "gemini_extract"}
    assert all(context.items() <= each["context"].items() for each in (first, second, last))  # type: ignore[attr-defined]
    (folder,) = {
        path.parent.name for path in asking.root.glob(f"logs/WARNING/error_*_{failed.facts.key}.json")
    }
    assert folder == "WARNING"


@pytest.mark.req("CQ-2.1", "CQ-2.2", decision="D-5")
def test_a_dead_letter_is_a_file_with_its_payload_that_only_its_owner_can_read(
    asking: Settings, rd: Redrive, clock: VirtualClock, gemini: Gemini
) -> None:
    write_mailbox(asking, [mail("One")])
    gemini.faults.append(400)
    (job,) = work_off(asking, rd)

    (path,) = (asking.root / "dlq").glob("*/*.json")
    told = json.loads(path.read_text())
    assert path.relative_to(asking.root) == Path("dlq") / "gemini_extract" / f"{told['dlq_id']}.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert told["dlq_id"].startswith("dlq_")
    assert told["dlq_id"].endswith(f"_{job.facts.key}")
    assert (told["email_id"], told["operation_type"], told["status"]) == (
        job.facts.key,
        "gemini_extract",
        "pending",
    )
    payload = told["original_payload"]
    assert (payload["email_id"], payload["subject"], payload["text"]) == (
        job.facts.key,
        "One",
        "Shall we meet?",
    )
    assert "Shall we meet?" not in json.dumps(told["error_details"])
    assert told["error_details"]["error_type"] == "google.genai.errors.ClientError"
    assert (told["error_details"]["retry_count"], told["error_details"]["job_id"]) == (0, job.id)
    assert told["created_at"] <= told["last_attempt"]
    assert (told["replayed_at"], told["processed"]) == (None, False)


@pytest.mark.req("CQ-2.2", decision="D-4")
def test_a_replay_goes_through_once_and_is_written_down(
    asking: Settings, rd: Redrive, clock: VirtualClock, gemini: Gemini
) -> None:
    write_mailbox(asking, [mail("One")])
    gemini.faults.append(400)
    (job,) = work_off(asking, rd)
    _, dlq = files_of(asking)
    (entry,) = dlq.update(rd)

    rd.jobs.retry(job.id, actor="kim")
    (replaying,) = dlq.update(rd)
    work_off(asking, rd)
    (done,) = dlq.update(rd)

    assert replaying.status is DLQStatus.REPLAYING
    assert (done.dlq_id, done.status, done.processed) == (entry.dlq_id, DLQStatus.COMPLETED, True)
    assert done.replayed_at is not None
    assert done.replayed_at >= done.last_attempt
    assert json.loads((asking.root / "dlq" / PROCESSED).read_text()) == [entry.dlq_id]
    assert dlq.processed_ids() == {entry.dlq_id}
    with pytest.raises(ReplayRefusedError):
        rd.jobs.retry(job.id, actor="kim")


@pytest.mark.req("CQ-2.1", decision="D-10")
def test_a_replay_that_brings_the_same_failure_back_is_failed(
    asking: Settings, rd: Redrive, clock: VirtualClock, gemini: Gemini
) -> None:
    write_mailbox(asking, [mail("One")])
    gemini.forever = 400
    (job,) = work_off(asking, rd)
    clock.advance(5)

    rd.jobs.retry(job.id, actor="kim")
    work_off(asking, rd)

    _, dlq = files_of(asking)
    old, new = dlq.update(rd)
    assert (old.status, new.status) == (DLQStatus.FAILED, DLQStatus.FAILED)
    assert old.dlq_id != new.dlq_id
    assert dlq.processed_ids() == set()


@pytest.mark.req("CQ-4.1", decision="D-3")
def test_an_open_breaker_refuses_without_a_call_and_the_dead_letter_says_so(
    asking: Settings, rd: Redrive, clock: VirtualClock, gemini: Gemini
) -> None:
    write_mailbox(asking, [mail(f"Mail {n}") for n in range(8)])
    gemini.forever = 503
    made: list[float] = []
    gemini.on_request = lambda _: made.append(clock.wall())

    jobs = work_off(asking, rd)

    assert {job.status for job in jobs} == {"failed"}
    assert made[4] - made[0] < 60
    assert all(later - sooner >= 60 for sooner, later in pairwise(made[4:]))
    refused = [job for job in jobs if job.facts.error_code == "BREAKER_OPEN"]
    assert refused
    details = {entry.email_id: entry.error_details for entry in files_of(asking)[1].update(rd)}
    assert {details[str(job.facts.key)]["error_type"] for job in refused} == {"CircuitBreakerOpen"}
    assert {details[str(job.facts.key)]["retry_count"] for job in refused} == {2}
    assert all(one.burned for job in refused for one in job.attempts())
    total = sum(1 for job in jobs for one in job.attempts() if one.stage == "gemini_extract")
    assert total == 8 * 3
    assert len(made) < total
    refusals = [each for each in records(asking) if each["error_type"] == "CircuitBreakerOpen"]
    assert {each["severity"] for each in refusals} == {"WARNING", "ERROR"}
    assert {each["category"] for each in refusals} == {"TRANSIENT"}
    assert all("BreakerOpen" in str(each["stack_trace"]) for each in refusals)


@pytest.mark.req("CQ-4.1")
def test_every_failed_call_counts_against_the_service_but_a_bad_mail_does_not(
    asking: Settings, rd: Redrive, clock: VirtualClock, gemini: Gemini
) -> None:
    write_mailbox(asking, [mail(f"Mail {n}") for n in range(6)])
    gemini.faults.extend([400, 401, 403, 404, 400])

    jobs = work_off(asking, rd)

    # Five permanent answers opened the breaker; the sixth mail was refused, and passed when the minute was over.
    assert [job.status for job in jobs] == ["failed"] * 5 + ["complete"]
    assert [one.code for one in jobs[5].attempts() if one.outcome == "retry"] == ["BREAKER_OPEN"]
    critical = [each for each in records(asking) if each["severity"] == "CRITICAL"]
    assert {each["category"] for each in critical} == {"CRITICAL"}
    assert {each["http_status"] for each in critical} == {401}
    denied = [each for each in records(asking) if each["http_status"] == 403]
    assert [(each["severity"], each["category"]) for each in denied] == [("ERROR", "PERMANENT")]


@pytest.mark.req("CQ-1.1")
def test_a_failure_that_is_tried_once_is_not_transient(
    asking: Settings, rd: Redrive, clock: VirtualClock, gemini: Gemini
) -> None:
    write_mailbox(asking, [mail("One")])
    gemini.faults.append(Fault(501, {"error": {"code": 501, "message": "x", "status": "UNIMPLEMENTED"}}))

    work_off(asking, rd)

    (record,) = records(asking)
    assert (record["severity"], record["category"]) == ("ERROR", "PERMANENT")


@pytest.mark.req("CQ-1.1")
def test_a_quota_that_is_spent_for_the_day_is_not_transient(
    settings: Settings, rd: Redrive, clock: VirtualClock, gmail: Gmail
) -> None:
    gmail.mails = {"19a3f3f856f0b4d4": mail("One")}
    gmail.only = "GET /gmail/v1/users/me/messages/"
    spent = {"domain": "usageLimits", "reason": "dailyLimitExceeded", "message": "as documented"}
    gmail.forever = Fault(403, {"error": {"code": 403, "message": "as documented", "errors": [spent]}})

    work_off(replace(settings, source="gmail", gmail_url=gmail.url), rd)

    (record,) = records(settings)
    assert (record["severity"], record["category"], record["http_status"]) == ("ERROR", "PERMANENT", 403)
    assert gmail.calls("/messages/") == 1


@pytest.mark.req("CQ-1.1")
def test_a_refused_mail_has_a_stack_and_nothing_of_the_mail_in_it(
    settings: Settings, rd: Redrive, clock: VirtualClock
) -> None:
    write_mailbox(settings, [b"\n\n" + bytes(range(128, 256))])

    work_off(settings, rd)

    (record,) = records(settings)
    assert "in parse" in str(record["stack_trace"])
    (entry,) = files_of(settings)[1].update(rd)
    assert "in parse" in str(entry.error_details["stack_trace"])


@pytest.mark.req("CQ-4.2")
def test_a_half_open_breaker_opens_again_at_any_failure_and_closes_after_two_successes(
    asking: Settings, rd: Redrive, clock: VirtualClock, gemini: Gemini
) -> None:
    write_mailbox(asking, [mail(f"Mail {n}") for n in range(30)])
    gemini.faults.extend([503] * 5 + [None, 503])
    made: list[float] = []
    gemini.on_request = lambda _: made.append(clock.wall())

    jobs = work_off(asking, rd)

    opened, probe, reopened, first, second = made[4], made[5], made[6], made[7], made[8]
    assert probe >= opened + 60
    assert reopened < probe + 60
    assert first >= reopened + 60
    assert second < first + 60
    assert {job.status for job in jobs} <= {"complete", "failed"}
    assert sum(job.status == "complete" for job in jobs) == len(made) - 6


@pytest.mark.req("CQ-3.1", "CQ-3.2")
def test_a_told_delay_is_kept(
    settings: Settings, rd: Redrive, clock: VirtualClock, notion: Notion, gemini: Gemini
) -> None:
    asking = replace(
        settings, extractor="gemini", gemini_url=gemini.url, sink="notion", notion_url=notion.url
    )
    write_mailbox(asking, [mail("One")])
    gemini.faults.append(429)
    notion.faults.append(429)
    made: list[tuple[str, float]] = []
    gemini.on_request = lambda asked: made.append(("gemini", clock.wall()))
    notion.on_request = lambda asked: made.append(("notion", clock.wall()))

    (job,) = work_off(asking, rd)

    assert job.status == "complete"
    assert 17 <= made[1][1] - made[0][1] <= 20
    assert 23 <= made[3][1] - made[2][1] <= 26


@pytest.mark.req("CQ-5.1", decision="D-1")
def test_an_exception_nobody_knows_is_not_tried_again(
    asking: Settings, rd: Redrive, clock: VirtualClock, gemini: Gemini
) -> None:
    write_mailbox(asking, [mail("One")])
    gemini.text = '{"people": "nobody"}'

    (job,) = work_off(asking, rd)

    assert (job.status, len(gemini.asked)) == ("failed", 1)
