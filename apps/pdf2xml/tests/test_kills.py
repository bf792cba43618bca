# SPDX-License-Identifier: Apache-2.0
"""Processes that are killed: nothing is lost, nothing is stuck, and nothing is there twice."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from apps.pdf2xml.tests.pdfs import pdf
from apps.pdf2xml.tests.site import Site, Visitor, until
from redrive.store.statements import transfer as transfer_sql


def results(site: Site, job: int) -> list[str]:
    return [path.name for path in (site.settings.folder / "results").glob(f"{job}-*")]


@pytest.mark.req("PX-11.9", "PX-9.1")
def test_a_result_that_was_written_before_the_worker_died_is_not_made_again(
    site: Site, visitor: Visitor
) -> None:
    site.no_worker()
    job = visitor.submit(pdf("Written once."))
    with closing(site.store) as store:
        (payload,) = [row.payload for row in store.query(transfer_sql.exported_values(job=job))]
    token = str(payload).partition('"token":"')[2].partition('"')[0]
    # As if an earlier attempt had finished, and its commit had been lost.
    (site.settings.folder / "results" / f"{job}-{token}.xml").write_text("<document>before</document>")

    site.worker()

    assert visitor.wait(job, "complete", "failed")["status"] == "complete"
    assert site.asked(job) == 0
    assert visitor.download(job).text == "<document>before</document>"


def test_jobs_survive_a_gateway_that_is_killed_under_load(site: Site, visitor: Visitor) -> None:
    site.worker(breaker_min_calls=3, breaker_open_for=0.1, breaker_ramp=0.0, concurrency=4)
    site.fault("slow")
    jobs = [visitor.submit(pdf(f"file {number}")) for number in range(12)]
    until(lambda: sum(site.asked(job) for job in jobs) >= 4, "conversions run")

    site.gateway.end(signal.SIGKILL)
    until(lambda: visitor.http.get("/api/jobs").json()["is_paused"], "the breaker opens")
    site.restart_gateway()

    ended = [visitor.wait(job, "complete", "failed") for job in jobs]
    assert {job["status"] for job in ended} == {"complete"}
    assert [len(results(site, job)) for job in jobs] == [1] * len(jobs)


def test_an_api_that_is_killed_during_an_upload_loses_nothing_that_it_confirmed(
    site: Site, visitor: Visitor
) -> None:
    site.fault("slow")
    confirmed = visitor.submit(pdf("Confirmed."))
    address = urlsplit(site.api.url)
    half = (
        b"POST /api/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n"
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="f.pdf"\r\n\r\n%PDF-1.4'
    )
    with socket.create_connection((address.hostname, address.port or 80)) as connection:
        connection.sendall(half + b"x" * 600_000)
        until(lambda: list((site.settings.folder / "drafts").iterdir()), "the upload is being written")
        site.api.end(signal.SIGKILL)

    site.restart_api()
    site.fault("ok")

    assert visitor.wait(confirmed, "complete", "failed")["status"] == "complete"
    assert [job["id"] for job in visitor.jobs()] == [confirmed]
    # What was half written is found by its age, and no source has come of it.
    (draft,) = (site.settings.folder / "drafts").iterdir()
    os.utime(draft, (0, 0))
    from apps.pdf2xml.jobs import Jobs

    jobs = Jobs(site.settings)
    jobs.purge()
    jobs.close()
    assert not draft.exists()
