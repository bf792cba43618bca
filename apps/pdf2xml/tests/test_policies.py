# SPDX-License-Identifier: Apache-2.0
"""The rules as tables: which answer of the gateway means what, how often, after which delay; and the settings."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import redrive
from apps.pdf2xml.codes import LINES, codes, line_of
from apps.pdf2xml.jobs import Jobs
from apps.pdf2xml.pipeline import breaker, build, policy
from apps.pdf2xml.settings import Settings
from apps.pdf2xml.uploads import Form
from redrive import ConfigurationError
from redrive.core.decide import DeadLetter, History, RetryAt, decide
from redrive.core.failure import Failure
from redrive.errors import AttemptTimeoutError

SETTINGS = Settings()


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


def test_a_payload_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    jobs = Jobs(replace(SETTINGS, folder=tmp_path))
    for wrong in ("../../etc/passwd", "", "a/b", "x" * 32):
        with pytest.raises(redrive.Fail):
            jobs.files.source(wrong)
    jobs.close()
    assert build(SETTINGS).replay.owner_retry
