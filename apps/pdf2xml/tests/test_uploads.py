# SPDX-License-Identifier: Apache-2.0
"""Uploads: what is refused and how, what counts as the same work, and whose it is."""

from __future__ import annotations

import re
import socket
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from apps.pdf2xml.codes import LINES, STATUSES
from apps.pdf2xml.jobs import Jobs
from apps.pdf2xml.tests.pdfs import pdf
from apps.pdf2xml.tests.site import Site, Visitor, code_of, until
from redrive.store.statements import jobs as job_sql

HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="f.pdf"\r\n\r\n'


@pytest.mark.req("PX-2.1")
@pytest.mark.parametrize(
    "data",
    [b"", b"%PD", b"hello %PDF-1.4", b"PK\x03\x04 zip", b"\x89PNG", b"%!PS-Adobe"],
    ids=lambda data: data[:6].hex(),
)
def test_what_is_no_pdf_is_refused_by_its_content_whatever_its_name(visitor: Visitor, data: bytes) -> None:
    answer = visitor.upload(data, name="looks-like.pdf")

    assert code_of(answer) == (400, "NOT_PDF")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.req("PX-2.1")
def test_a_pdf_under_another_name_is_accepted(visitor: Visitor) -> None:
    assert visitor.upload(b"\xef\xbb\xbf\r\n" + pdf(), name="photo.jpg").status_code == 201


@pytest.mark.req("PX-2.1")
def test_the_limit_holds_while_reading_without_memory_for_the_file(site: Site, visitor: Visitor) -> None:
    def long() -> Generator[bytes]:
        yield HEAD + b"%PDF-1.4\n"
        for _ in range(90):
            yield b"x" * 1_000_000

    before = _peak(site)
    answer = visitor.http.post(
        "/api/upload", content=long(), headers={"Content-Type": "multipart/form-data; boundary=x"}
    )

    assert code_of(answer) == (413, "TOO_LARGE")
    assert _peak(site) - before < 40_000
    assert list((site.settings.folder / "drafts").iterdir()) == []


def _peak(site: Site) -> int:
    """Return the most memory that the API ever had, in kilobytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{site.api.pid}/status").read_text(encoding="utf-8"))
    assert found
    return int(found[1])


@pytest.mark.req("PX-2.2")
def test_a_failed_disk_write_leaves_a_failed_job_and_is_answered_with_500(
    site: Site, visitor: Visitor
) -> None:
    drafts = site.settings.folder / "drafts"
    aside = drafts.rename(drafts.with_name("aside-drafts"))
    drafts.touch()
    try:
        answer = visitor.upload(pdf())
    finally:
        drafts.unlink()
        aside.rename(drafts)

    assert code_of(answer) == (500, "IO_ERROR")
    assert str(site.settings.folder) not in answer.text
    job = visitor.job(answer.json()["job"]["id"])
    assert (job["status"], job["error_code"], job["error_message"]) == (
        "failed",
        "IO_ERROR",
        LINES["IO_ERROR"],
    )


@pytest.mark.req("PX-2.3")
def test_the_same_file_of_the_same_owner_with_the_same_mapping_is_the_same_job(
    site: Site, visitor: Visitor
) -> None:
    data = pdf()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: visitor.upload(data), range(8)))

    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    job = answers[0].json()["id"]
    visitor.wait(job, "complete")
    assert visitor.upload(data).json()["id"] == job
    assert site.asked(job) == 1
    assert visitor.submit(data, mapping="layout") != job
    with site.visitor() as other:
        assert other.submit(data) != job


@pytest.mark.req("PX-2.3")
def test_a_failed_job_and_one_whose_result_is_gone_are_no_duplicates(site: Site, visitor: Visitor) -> None:
    data = pdf()
    site.fault("status", status=400)
    failed = visitor.submit(data)
    visitor.wait(failed, "failed")
    site.fault("ok")

    second = visitor.submit(data)
    done = visitor.wait(second, "complete")
    (site.settings.folder / done["result_path"]).unlink()
    third = visitor.submit(data)

    assert len({failed, second, third}) == 3
    visitor.wait(third, "complete")
    assert visitor.submit(data) == third
    # Its file has a newer job, so the first one cannot come back; nothing breaks.
    assert code_of(visitor.retry(failed)) == (409, "NOT_READY")


@pytest.mark.req("PX-6.1", "PX-7.1")
def test_each_answer_has_its_code_and_the_state_comes_before_the_owner(site: Site, visitor: Visitor) -> None:
    complete = visitor.submit(pdf())
    visitor.wait(complete, "complete")
    site.fault("status", status=400)
    failed, gone = visitor.submit(pdf()), visitor.submit(pdf())
    for job in (failed, gone):
        visitor.wait(job, "failed")
    source = next((site.settings.folder / "sources").glob(f"*.{visitor.job(gone)['sha256']}.*"))
    source.unlink()
    site.fault("slow")
    queued = visitor.submit(pdf())

    with site.visitor() as stranger:
        assert code_of(stranger.retry(complete)) == (409, "NOT_READY")
        assert code_of(stranger.retry(gone)) == (404, "EXPIRED")
        assert code_of(stranger.retry(failed)) == (403, "FORBIDDEN")
        assert code_of(stranger.download(queued)) == (409, "NOT_READY")
        assert code_of(stranger.download(complete)) == (403, "FORBIDDEN")
        assert code_of(stranger.http.get(f"/api/jobs/{complete}")) == (403, "FORBIDDEN")
        assert stranger.jobs() == []
    assert visitor.job(failed)["status"] == "failed"
    for wrong in ("999999999", "abc", "-1", "9" * 30, "1e3"):
        assert code_of(visitor.http.get(f"/api/jobs/{wrong}/download")) == (404, "EXPIRED")
        assert code_of(visitor.http.post(f"/api/jobs/{wrong}/retry")) == (404, "EXPIRED")


@pytest.mark.req("PX-1.1")
def test_the_codes_are_one_set_everywhere(site: Site, visitor: Visitor) -> None:
    flow = Jobs(site.settings)
    assert set(flow.flow.codes.names if flow.flow.codes else ()) == set(LINES)
    flow.close()
    assert set(STATUSES) <= set(LINES)
    site.fault("status", status=415)
    job = visitor.submit(pdf())
    shown = visitor.wait(job, "failed")
    store = site.store
    (stored,) = [row.error_code for row in store.query(job_sql.job(job=job))]
    store.close()
    page = visitor.http.get("/").text

    assert shown["error_code"] == stored == "GW_4XX"
    assert shown["events"][-1]["code"] == "GW_4XX"
    assert shown["error_message"].rstrip(".") in page
    assert re.search(rf"job {job} pdf2xml.convert attempt 1: dead letter with GW_4XX", site.log("worker"))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{}", "application/json"),
        (b"--x\r\n", "multipart/form-data; boundary=x"),
        (b"", "multipart/form-data"),
        (HEAD + b"%PDF-1.4 cut", "multipart/form-data; boundary=x"),
        (HEAD + b"%PDF-1.4\r\n" + HEAD + b"%PDF-1.4\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (
            b'--x\r\nContent-Disposition: form-data; name="mapping"\r\n\r\n../x\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
        (
            b'--x\r\nContent-Disposition: form-data; name="mapping"\r\n\r\ntext\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
        (b"--x\r\nA: " + b"y" * 9000, "multipart/form-data; boundary=x"),
    ],
)
def test_what_is_no_such_form_is_refused_and_leaves_nothing(
    site: Site, visitor: Visitor, body: bytes, kind: str
) -> None:
    answer = visitor.http.post("/api/upload", content=body, headers={"Content-Type": kind})

    assert code_of(answer) == (400, "UNKNOWN")
    assert answer.json()["title"] == LINES["UNKNOWN"]
    assert visitor.jobs() == []
    assert list((site.settings.folder / "drafts").iterdir()) == []


@pytest.mark.req("PX-1.1")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/jobs?before=99999999999999999999", 400),
        ("GET", "/?before=99999999999999999999", 400),
        ("GET", "/?before=-1", 400),
        ("GET", "/nowhere", 404),
        ("GET", "/static/nothing", 404),
        ("DELETE", "/api/jobs", 405),
    ],
)
def test_requests_that_the_api_does_not_know_have_a_code_of_the_set(
    visitor: Visitor, method: str, path: str, status: int
) -> None:
    assert code_of(visitor.http.request(method, path)) == (status, "UNKNOWN")


def test_a_name_is_shown_without_folders_and_without_markup(visitor: Visitor) -> None:
    visitor.submit(pdf(), name="../../etc/<img src=x onerror=alert(1)>\u202efdp.pdf")

    (job,) = visitor.jobs()
    assert job["name"].endswith("<img src=x onerror=alert(1)>fdp.pdf")
    assert "<img" not in visitor.http.get("/").text
    assert "/" not in job["name"]


def test_a_session_cannot_be_made_up(site: Site, visitor: Visitor) -> None:
    visitor.submit(pdf())
    cookie = visitor.http.cookies["pdf2xml"]

    forged = cookie[:-1] + ("0" if cookie[-1] != "0" else "1")
    with httpx.Client(base_url=site.api.url, cookies={"pdf2xml": forged}, trust_env=False) as thief:
        assert thief.get("/api/jobs").json()["jobs"] == []
    with httpx.Client(base_url=site.api.url, cookies={"pdf2xml": cookie}, trust_env=False) as same:
        assert len(same.get("/api/jobs").json()["jobs"]) == 1


@pytest.mark.parametrize("path", ["/api/upload", "/api/jobs/1/retry"])
@pytest.mark.parametrize("origin", ["cross-site", "same-site"])
def test_a_form_of_another_site_is_refused_and_does_not_replace_the_session(
    site: Site, path: str, origin: str
) -> None:
    files = {"file": ("file.pdf", pdf(), "application/pdf")}
    headers = {"Sec-Fetch-Site": origin, "Accept": "text/html"}
    answer = httpx.post(site.api.url + path, files=files, headers=headers, trust_env=False)

    assert code_of(answer) == (403, "FORBIDDEN")
    assert "set-cookie" not in answer.headers


def test_a_form_of_the_page_itself_is_accepted(visitor: Visitor) -> None:
    visitor.http.headers["Sec-Fetch-Site"] = "same-origin"

    assert visitor.upload(pdf()).status_code == 201


def test_a_client_that_leaves_in_the_middle_leaves_nothing(site: Site) -> None:
    address = urlsplit(site.api.url)
    with socket.create_connection((address.hostname, address.port or 80)) as connection:
        connection.sendall(
            b"POST /api/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\n\r\n" + HEAD + b"%PDF-1.4 and then"
        )
    with site.visitor() as next_one:
        next_one.submit(pdf())

    until(lambda: list((site.settings.folder / "drafts").iterdir()) == [])
    assert "Traceback" not in site.log("api")


def test_every_answer_forbids_foreign_content_and_shows_no_internals(visitor: Visitor) -> None:
    for path in (
        "/",
        "/api/jobs",
        "/nowhere",
        "/api/jobs/1/download",
        "/static/queue.js",
        "/static/../api.py",
    ):
        answer = visitor.http.get(path)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "Traceback" not in answer.text
        assert "/work" not in answer.text
