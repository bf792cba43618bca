# SPDX-License-Identifier: Apache-2.0
"""The rules as tables: which answer of the gateway means what, how often, after which delay; and the settings."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

import redrive
from apps.pdf2xml import live, pipeline
from apps.pdf2xml.codes import LINES, codes, line_of
from apps.pdf2xml.files import DRAFT_SECONDS, key_of
from apps.pdf2xml.gateway.child import Order, carry_out
from apps.pdf2xml.jobs import Jobs, JobView
from apps.pdf2xml.live import Feed, Watcher, follow
from apps.pdf2xml.pipeline import Gateway, Upload, breaker, build, policy
from apps.pdf2xml.settings import Settings
from apps.pdf2xml.tests.pdfs import pdf
from apps.pdf2xml.uploads import Form
from redrive import ConfigurationError
from redrive.core.decide import DeadLetter, History, RetryAt, decide
from redrive.core.failure import Failure
from redrive.engine.replay.rules import record_rules
from redrive.errors import AttemptTimeoutError, JobNotFoundError
from redrive.web import ProblemError

SETTINGS = Settings()
OWNER = "a" * 32


def failure_of(error: Exception) -> Failure:
    return redrive.classify(error, codes=codes("hold"), stage="convert")


def answered(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://gateway/convert")
    return httpx.HTTPStatusError(
        "no", request=request, response=httpx.Response(status, headers=headers, request=request)
    )


@pytest.mark.req("PX-3.1")
@pytest.mark.parametrize("status", range(400, 600))
def test_every_status_of_the_gateway_has_its_code_and_is_retried_or_not(status: int) -> None:
    failure = failure_of(answered(status))

    is_retried = status in {408, 425, 429} or status >= 500
    assert (failure.code, failure.retryable) == ("GW_5XX" if is_retried else "GW_4XX", is_retried)


@pytest.mark.req("PX-3.1")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx.ConnectError("refused"), "GW_5XX"),
        (httpx.RemoteProtocolError("cut"), "GW_5XX"),
        (httpx.ReadError("reset"), "GW_5XX"),
        (httpx.ReadTimeout("slow"), "GW_TIMEOUT"),
        (httpx.ConnectTimeout("slow"), "GW_TIMEOUT"),
        (AttemptTimeoutError(timeout=1), "GW_TIMEOUT"),
    ],
)
def test_a_gateway_that_does_not_answer_is_retried(error: Exception, code: str) -> None:
    failure = failure_of(error)

    assert (failure.code, failure.retryable) == (code, True)


@pytest.mark.req("PX-3.3")
def test_the_delays_are_5_15_and_45_seconds_give_or_take_a_fifth_and_there_are_three_attempts() -> None:
    failure = failure_of(answered(503))

    delays = []
    for attempt, nominal in ((1, 5), (2, 15), (3, 45)):
        for draw in (0.0, 0.5, 0.999999):
            decision = decide(
                policy(replace(SETTINGS, retry_max_attempts=4)), failure, History(attempt=attempt), 0.0, draw
            )
            assert isinstance(decision, RetryAt)
            delays.append(decision.delay / nominal)
    assert delays == pytest.approx([0.8, 1.0, 1.2] * 3, rel=0.001)
    assert isinstance(decide(policy(SETTINGS), failure, History(attempt=2), 0.0, 0.0), RetryAt)
    assert isinstance(decide(policy(SETTINGS), failure, History(attempt=3), 0.0, 0.0), DeadLetter)


@pytest.mark.req("PX-3.1")
def test_a_delay_that_the_gateway_asks_for_is_kept() -> None:
    decision = decide(
        policy(SETTINGS), failure_of(answered(429, **{"retry-after": "40"})), History(attempt=1), 0.0, 0.0
    )

    assert isinstance(decision, RetryAt)
    assert decision.delay == 40


@pytest.mark.req("PX-3.2")
@pytest.mark.parametrize(
    ("number", "tries"),
    [
        (errno.EIO, 2),
        (errno.EACCES, 2),
        (errno.ENOTDIR, 2),
        (errno.EROFS, 2),
        (errno.ENOSPC, 1),
        (errno.EDQUOT, 1),
    ],
    ids=errno.errorcode.get,
)
def test_a_failed_write_is_tried_once_more_unless_the_disk_is_full(number: int, tries: int) -> None:
    failure = failure_of(OSError(number, "no"))

    assert failure.code == "IO_ERROR"
    last = History(attempt=tries, failures_by_code={"IO_ERROR": tries - 1})
    assert isinstance(decide(policy(SETTINGS), failure, last, 0.0, 0.0), DeadLetter)
    if tries == 2:
        assert isinstance(decide(policy(SETTINGS), failure, History(attempt=1), 0.0, 0.0), RetryAt)


@pytest.mark.req("PX-5.1", "PX-5.2")
def test_the_breaker_opens_at_half_of_at_least_three_calls_in_two_minutes() -> None:
    made = breaker(SETTINGS)

    assert (made.failure_rate, made.window, made.min_calls, made.mode) == (0.5, 120.0, 3, "hold")
    assert made.counts == frozenset({"GW_5XX", "GW_TIMEOUT"})
    assert breaker(replace(SETTINGS, breaker_mode="fail_fast")).mode == "fail_fast"
    assert not codes("fail_fast").codes[0].retryable


@pytest.mark.req("PX-1.2")
def test_the_lines_are_those_that_were_asked_for_and_the_gateways_message_is_cut() -> None:
    assert line_of("TOO_LARGE") == "File exceeds 50 MB limit."
    assert line_of("GW_4XX", "Unsupported\n mapping.") == f"{LINES['GW_4XX']} Unsupported mapping."
    assert line_of("GW_5XX", "secret") == "Converter service is having an issue. We\u2019ll retry shortly."
    assert len(line_of("GW_4XX", "x" * 10_000)) < 300
    for unsafe in (
        "Failed in /srv/app.py",
        "C:\\temp",
        "Traceback (most recent call last)",
        "error at line 7",
    ):
        assert line_of("GW_4XX", unsafe) == LINES["GW_4XX"]
    assert line_of("no such code") == "Something went wrong. We have logged it."


def test_settings_come_from_the_environment_and_back(tmp_path: Path) -> None:
    changed = replace(
        SETTINGS, folder=tmp_path, retry_delays=(1.0, 2.5), secure_cookie=True, breaker_mode="fail_fast"
    )

    assert Settings.read({**changed.environment(), "OTHER": "x"}) == changed
    assert Settings.read({"RETRY_MAX_ATTEMPTS": "7"}).retry_max_attempts == 7


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("PDF2XML_FOLDR", "x", "Did you mean PDF2XML_FOLDER"),
        ("PDF2XML_LEASE", "long", "does not fit"),
        ("PDF2XML_MAX_BYTES", "0", "above zero"),
        ("PDF2XML_BREAKER_MODE", "wait", "does not fit"),
        ("PDF2XML_RETRY_DELAYS", "", "does not fit"),
    ],
)
def test_wrong_settings_are_refused_by_name(variable: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        Settings.read({variable: value})


@pytest.mark.req("PX-2.3")
def test_retention_keeps_what_an_open_job_needs(tmp_path: Path) -> None:
    jobs = Jobs(replace(SETTINGS, folder=tmp_path))
    draft = jobs.files.new_draft()
    draft.write_bytes(b"%PDF-")
    job, is_new = jobs.submit("a" * 32, Form("f.pdf", "text", 5, "b" * 64), draft)
    stray = jobs.files.sources / "stray.pdf"
    stray.touch()
    (jobs.files.results / "not-a-job.xml").touch()

    assert jobs.purge(0.0) == 2
    assert is_new
    assert (job.status, len(list(jobs.files.sources.iterdir())), stray.exists()) == ("queued", 1, False)
    jobs.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Generator[Jobs]:
    settings = replace(SETTINGS, folder=tmp_path)
    made = Jobs(settings)
    # As a worker of the installation does when it starts.
    record_rules(made._rd.store, [build(settings)])
    yield made
    made.close()


def draft(jobs: Jobs, *, age: float = 0.0) -> Path:
    path = jobs.files.new_draft()
    path.write_bytes(b"%PDF-")
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_a_draft_that_cannot_get_its_name_is_removed(jobs: Jobs) -> None:
    left = draft(jobs)

    with pytest.raises(OSError, match="directory"):
        jobs.files.keep(left, jobs.files.folder / "missing" / "source.pdf")

    assert not left.exists()


def test_a_draft_of_a_process_that_died_is_purged_after_an_hour(jobs: Jobs) -> None:
    dead, new = draft(jobs, age=DRAFT_SECONDS + 60), draft(jobs)

    jobs.purge()

    assert (dead.exists(), new.exists()) == (False, True)


def test_a_purge_spares_the_source_of_an_upload_that_comes_at_the_same_time(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = Form("f.pdf", "text", 5, "b" * 64)
    source = jobs.files.source(key_of(OWNER, form.sha256, form.mapping, form.size))
    jobs.files.keep(draft(jobs, age=SETTINGS.retention + 60), source)
    # The upload comes after the look, and is done, or waits, before the purge goes on.
    is_open, lock, came = Jobs._is_open, fcntl.flock, threading.Event()

    def submit() -> None:
        jobs.submit(OWNER, form, draft(jobs))
        came.set()

    uploading = threading.Thread(target=submit)

    def look(self: Jobs, key: str) -> bool:
        found = is_open(self, key)
        uploading.start()
        assert came.wait(60)
        return found

    def locked(handle: int, how: int) -> None:
        if how == fcntl.LOCK_SH:
            came.set()
        lock(handle, how)

    monkeypatch.setattr(Jobs, "_is_open", look)
    monkeypatch.setattr(fcntl, "flock", locked)
    jobs.purge()
    uploading.join()

    assert [job.status for job in jobs.queue(OWNER)[0]] == ["queued"]
    assert source.exists()


def test_one_file_that_cannot_be_purged_does_not_keep_the_others(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.pdf", "b.pdf"):
        (jobs.files.sources / name).touch()

    def is_open(_jobs: Jobs, key: str) -> bool:
        if key == "a":
            raise JobNotFoundError(job_id=1)
        return False

    monkeypatch.setattr(Jobs, "_is_open", is_open)

    assert jobs.purge(0.0) == 1
    assert [path.name for path in jobs.files.sources.iterdir()] == ["a.pdf"]


def test_a_look_that_fails_does_not_end_the_watch_and_a_page_that_closes_leaves_nothing(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.001)
    looks: list[Exception | int] = [JobNotFoundError(job_id=1), OSError("no"), 1]

    async def read(_call: object) -> object:
        found = looks.pop(0) if looks else 1
        if isinstance(found, Exception):
            raise found
        return found

    async def look() -> tuple[list[JobView], bool]:
        return [], False

    async def main() -> None:
        watcher = Watcher(jobs, read)
        watcher.pages = 1
        watching = asyncio.create_task(watcher.run())
        await asyncio.wait_for(watcher.changed(), 60)
        watching.cancel()
        await asyncio.wait([watching])

        page = follow("", watcher, Feed(lambda _job: ""), look)
        await anext(page)
        (waiting,) = asyncio.all_tasks() - {asyncio.current_task()}
        await page.aclose()
        await asyncio.wait([waiting], timeout=60)
        assert (waiting.cancelled(), watcher.pages) == (True, 1)

    asyncio.run(main())


def test_a_retry_by_somebody_else_does_not_renew_the_source_and_one_without_a_source_is_not_offered(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = Form("f.pdf", "text", 5, "b" * 64)
    refused = jobs.refuse(OWNER, form, "IO_ERROR", "no")
    assert (refused.status, refused.is_retryable) == ("failed", False)

    source = jobs.files.source(key_of(OWNER, form.sha256, form.mapping, form.size))
    jobs.files.keep(draft(jobs, age=3600), source)
    before = source.stat().st_mtime
    monkeypatch.setattr(Jobs, "_upload", lambda *_: Upload("f.pdf", "text", form.sha256, 5, source.stem, "t"))
    assert jobs.queue(OWNER)[0][0].is_retryable
    with pytest.raises(ProblemError, match="FORBIDDEN"):
        jobs.retry("c" * 32, refused.id)
    assert source.stat().st_mtime == before
    assert jobs.retry(OWNER, refused.id).status == "queued"
    assert source.stat().st_mtime > before


def test_a_result_has_a_limit_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in.pdf"
    source.write_bytes(pdf("A long text. " * 10))
    assert carry_out(Order(str(source), str(tmp_path / "out.xml"), "text"), 100).status == 413

    monkeypatch.setattr(pipeline, "RESULT_MAX", 100)
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, content=b"x" * 101)

    async def convert() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            gateway = Gateway(replace(SETTINGS, folder=tmp_path), http)
            upload = Upload("f.pdf", "text", "", source.stat().st_size, "", "")
            await gateway.convert(upload, source, tmp_path / "draft", SimpleNamespace(idempotency_key="k"))  # type: ignore[arg-type]

    with pytest.raises(redrive.Fail) as caught:
        asyncio.run(convert())
    failure = failure_of(caught.value)
    assert (failure.code, failure.retryable) == ("GW_4XX", False)
    assert asked[0].headers["accept-encoding"] == "identity"


def test_a_payload_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    jobs = Jobs(replace(SETTINGS, folder=tmp_path))
    for wrong in ("../../etc/passwd", "", "a/b", "x" * 32):
        with pytest.raises(redrive.Fail):
            jobs.files.source(wrong)
    jobs.close()
    assert build(SETTINGS).replay.owner_retry
