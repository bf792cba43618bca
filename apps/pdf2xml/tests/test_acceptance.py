# SPDX-License-Identifier: Apache-2.0
"""The nine acceptance checks, in their order, against the running API, worker and gateway."""

from __future__ import annotations

import signal
import xml.etree.ElementTree as ET

import pytest

from apps.pdf2xml.codes import LINES
from apps.pdf2xml.tests.pdfs import pdf
from apps.pdf2xml.tests.site import Site, Visitor, code_of, until


@pytest.mark.req("PX-11.1", "PX-8.1")
def test_a_bad_type_leaves_a_failed_job_and_is_answered_with_400(visitor: Visitor) -> None:
    answer = visitor.upload(b"GIF89a, whatever its name says", name="photo.pdf")

    assert code_of(answer) == (400, "NOT_PDF")
    job = visitor.job(answer.json()["job"]["id"])
    assert (job["status"], job["error_code"], job["error_message"]) == ("failed", "NOT_PDF", LINES["NOT_PDF"])
    assert job["failed_at"] is not None
    assert code_of(visitor.retry(job["id"])) == (404, "EXPIRED")


@pytest.mark.req("PX-11.2")
def test_a_file_above_the_limit_is_answered_with_413(visitor: Visitor) -> None:
    answer = visitor.upload(b"%PDF-1.4\n" + bytes(50_000_000))

    assert code_of(answer) == (413, "TOO_LARGE")
    assert answer.json()["title"] == LINES["TOO_LARGE"]


@pytest.mark.req("PX-11.3")
def test_a_mapping_that_the_gateway_refuses_fails_at_once_without_retries(
    site: Site, visitor: Visitor
) -> None:
    job = visitor.submit(pdf(), mapping="nonsense")

    failed = visitor.wait(job, "failed")
    assert failed["error_code"] == "GW_4XX"
    assert failed["error_message"] == f"{LINES['GW_4XX']} Unsupported mapping."
    assert failed["attempt_count"] == site.asked(job) == 1


@pytest.mark.req("PX-11.4", "PX-5.1", "PX-5.3")
def test_while_the_gateway_is_down_jobs_stay_queued_and_afterwards_they_complete(
    site: Site, visitor: Visitor
) -> None:
    site.worker(breaker_min_calls=3, breaker_open_for=0.1, breaker_ramp=0.0)
    site.fault("status", status=503)
    jobs = [visitor.submit(pdf()) for _ in range(5)]

    until(lambda: visitor.http.get("/api/jobs").json()["is_paused"], "the breaker opens")
    page = visitor.http.get("/api/jobs").json()
    assert page["message"] == "Gateway busy, paused. Will retry automatically."
    late = visitor.submit(pdf())
    held = site.asked(late)
    assert {visitor.job(job)["status"] for job in jobs} <= {"queued", "processing"}

    site.fault("ok")
    assert {visitor.wait(job, "complete", "failed")["status"] for job in (*jobs, late)} == {"complete"}
    assert held == 0
    assert not visitor.http.get("/api/jobs").json()["is_paused"]


@pytest.mark.req("PX-11.4", "PX-5.2", "PX-5.3")
def test_a_breaker_that_fails_fast_fails_new_jobs_at_once_and_after_a_probe_a_retry_works(
    site: Site, visitor: Visitor
) -> None:
    site.worker(
        breaker_mode="fail_fast",
        breaker_min_calls=3,
        breaker_open_for=0.1,
        breaker_ramp=0.0,
    )
    site.fault("status", status=500)
    first = [visitor.submit(pdf()) for _ in range(3)]
    assert {visitor.wait(job, "failed")["error_code"] for job in first} == {"GW_5XX"}

    late = visitor.submit(pdf())
    refused = visitor.wait(late, "failed")
    assert refused["error_code"] == "GW_5XX"
    assert site.asked(late) == 0

    site.fault("ok")
    until(lambda: site.phase() == "closed", "the probe closes the breaker, without any job")
    assert visitor.retry(late).status_code == 202
    assert visitor.wait(late, "complete", "failed")["status"] == "complete"


@pytest.mark.req("PX-11.5")
def test_a_gateway_that_hangs_is_asked_as_often_as_configured_and_then_it_is_a_timeout(
    site: Site, visitor: Visitor
) -> None:
    site.worker(gateway_timeout=1.0)
    site.fault("hang")
    job = visitor.submit(pdf())

    failed = visitor.wait(job, "failed")
    assert (failed["error_code"], failed["error_message"]) == ("GW_TIMEOUT", LINES["GW_TIMEOUT"])
    # On a busy machine an attempt may be over before the gateway has seen it.
    assert (failed["attempt_count"], site.asked(job) <= 3) == (3, True)
    assert [event["event"] for event in failed["events"]].count("retry") == 2


@pytest.mark.req("PX-11.6", "PX-3.2")
def test_a_result_that_cannot_be_written_is_tried_exactly_once_more(site: Site, visitor: Visitor) -> None:
    results = site.settings.folder / "results"
    aside = results.rename(results.with_name("aside"))
    # A file in the place of the folder: nothing can be written below it, not even by root.
    results.touch()
    try:
        job = visitor.submit(pdf())
        failed = visitor.wait(job, "failed")
    finally:
        results.unlink()
        aside.rename(results)

    assert (failed["error_code"], failed["error_message"]) == ("IO_ERROR", LINES["IO_ERROR"])
    assert failed["attempt_count"] == site.asked(job) == 2
    assert visitor.retry(job).status_code == 202
    assert visitor.wait(job, "complete", "failed")["status"] == "complete"
    assert list((site.settings.folder / "drafts").iterdir()) == []


@pytest.mark.req("PX-11.7", "PX-7.1")
def test_a_download_is_too_early_then_there_then_expired(site: Site, visitor: Visitor) -> None:
    site.fault("slow")
    job = visitor.submit(pdf("Downloaded."))
    visitor.wait(job, "processing")
    assert code_of(visitor.download(job)) == (409, "NOT_READY")

    site.fault("ok")
    visitor.wait(job, "complete")
    document = ET.fromstring(visitor.download(job).text)
    assert document.findtext("page") == "Downloaded."

    site_purge(site)
    assert code_of(visitor.download(job)) == (404, "EXPIRED")
    assert visitor.job(job)["is_expired"] is True


def site_purge(site: Site) -> None:
    """Retention passes: everything is old enough."""
    from apps.pdf2xml.jobs import Jobs

    jobs = Jobs(site.settings)
    jobs.purge(0.0)
    jobs.close()


@pytest.mark.req("PX-11.8", "PX-6.1")
def test_a_failed_job_is_retried_by_hand_and_then_completes(site: Site, visitor: Visitor) -> None:
    site.fault("status", status=400, detail="No, at /srv/app/secret.py.")
    job = visitor.submit(pdf())
    visitor.wait(job, "failed")
    # Without a worker the job stays as the retry has left it.
    site.no_worker()

    answer = visitor.retry(job)
    assert answer.status_code == 202
    queued = answer.json()
    assert (queued["status"], queued["error_code"], queued["error_message"], queued["failed_at"]) == (
        "queued",
        None,
        None,
        None,
    )
    assert queued["manual_retry_count"] == 1

    site.fault("ok")
    site.worker()
    done = visitor.wait(job, "complete")
    assert (done["attempt_count"], done["manual_retry_count"], done["error_code"]) == (2, 1, None)


@pytest.mark.req("PX-11.9", "PX-4.1", "PX-9.1")
def test_after_a_worker_died_in_the_middle_another_one_finishes_and_there_is_one_xml(
    site: Site, visitor: Visitor
) -> None:
    site.fault("slow")
    job = visitor.submit(pdf("Once only."))
    until(lambda: site.asked(job) == 1, "the conversion begins")
    before = visitor.job(job)
    site.no_worker(signal.SIGKILL)

    site.worker()
    site.fault("ok")

    done = visitor.wait(job, "complete", "failed")
    assert (before["attempt_count"], done["status"], done["attempt_count"]) == (1, "complete", 2)
    assert [path.name for path in (site.settings.folder / "results").glob(f"{job}-*")] == [
        done["result_path"].removeprefix("results/")
    ]
    assert visitor.download(job).text.count("<document") == 1
