# SPDX-License-Identifier: Apache-2.0
"""Jobs end to end: from a manifest to objects, dead letters on the broker, snapshots, errors and logs."""

from __future__ import annotations

import gzip
import hashlib
import json

import httpx
import obstore
import pytest
from obstore.store import S3Store

from apps.fetchbox.tests.box import Box, until
from apps.fetchbox.tests.servers import LARGE, S3Front
from redrive import connect
from redrive.store.statements import runs as run_sql


def test_resources_become_objects_below_the_prefix(box: Box) -> None:
    paths = [f"/file/{number}" for number in range(30)]

    snapshot = box.done(*paths, storage={"prefix": "a/b"})

    assert (snapshot["status"], snapshot["resources_completed"], snapshot["resources_failed"]) == (
        "completed",
        30,
        0,
    )
    assert (snapshot["last_error"], snapshot["dead_letter"]) == (None, None)
    assert [(box.objects / f"a/b/file-{number}").read_bytes() for number in (0, 29)] == [
        b"0" * 100,
        b"29" * 100,
    ]
    with connect(box.database) as rd:
        (run,) = rd.store.query(run_sql.run_with_key(pipeline="fetchbox", key=str(snapshot["job_id"])))
        jobs = [line.id for line in rd.jobs.list(run=run, limit=100)]
    left = {each.name.partition(".")[0] for each in (box.folder / "data" / "spool").iterdir()}
    assert len(jobs) == 30
    assert not left & {str(job) for job in jobs}


def test_the_manifest_is_kept_as_it_came_and_its_key_is_in_the_answer(box: Box) -> None:
    manifest = box.manifest("/file/kept", metadata={"b": [1, {"x": None}], "a": "ä"}, attributes={"n": 1.50})
    body = json.dumps(manifest, indent=3).encode()

    answer = box.client.post(
        "/jobs",
        content=gzip.compress(body),
        headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
    )

    assert answer.status_code == 202
    key = answer.json()["manifest_key"]
    assert (box.objects / key).read_bytes() == body
    assert answer.headers["location"] == f"/jobs/{answer.json()['job_id']}"
    assert box.ended(answer.json()["job_id"])["manifest_key"] == key


def test_headers_of_type_task_and_handler_are_sent(box: Box) -> None:
    manifest = box.manifest("signed-1=/file/signed", type="signed")
    manifest["resources"][0]["headers"] = {"X-Own": "mine"}  # type: ignore[index]

    box.ended(box.post(manifest).json()["job_id"])
    box.done("/file/typed")

    (signed,), (typed,) = box.origin.seen("/file/signed"), box.origin.seen("/file/typed")
    assert (signed["x-own"], signed["x-signature"]) == ("mine", "signed-signed-1")
    assert typed["x-type"] == "default"
    assert (box.objects / "by-handler/signed-1").exists()


def test_the_same_idempotency_key_is_the_same_job_per_tenant_and_type(box: Box) -> None:
    manifest = box.manifest("/file/same")
    first = box.post(manifest, Idempotency_Key="k1")
    again = box.post(manifest, Idempotency_Key="k1")
    other = box.post(manifest, Idempotency_Key="k1", X_Tenant="acme")
    typed = box.post({**manifest, "type": "proxied"}, Idempotency_Key="k1")
    changed = box.post(box.manifest("/file/changed"), Idempotency_Key="k1")

    ids = [each.json()["job_id"] for each in (first, again, other, typed)]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert (first.json()["is_duplicate"], again.json()["is_duplicate"]) == (False, True)
    assert again.headers["idempotent-replayed"] == "true"
    assert (changed.status_code, changed.json()["code"]) == (422, "VALIDATION_KEY_REUSED")
    box.ended(ids[0])
    assert box.client.get(f"/jobs/{ids[2]}", headers={"X-Tenant": "acme"}).status_code == 200
    assert box.client.get(f"/jobs/{ids[2]}").json()["code"] == "VALIDATION_UNKNOWN_JOB"


@pytest.mark.req("FB-3.1")
@pytest.mark.parametrize("path", ["/flaky/503/2/a", "/flaky/429/2/b", "/flaky/408/1/c", "/flaky/500/1/d"])
def test_what_can_heal_is_retried_until_it_does(box: Box, path: str) -> None:
    snapshot = box.done(path)

    assert snapshot["status"] == "completed"
    assert box.origin.requests[path] == int(path.split("/")[3]) + 1


@pytest.mark.req("FB-3.1", "FB-8.1", "FB-5.1")
def test_a_download_that_fails_again_and_again_leaves_a_dead_letter(box: Box) -> None:
    snapshot = box.done("/status/503/dead")

    assert box.origin.requests["/status/503/dead"] == 5
    assert (snapshot["status"], snapshot["resources_failed"]) == ("failed", 1)
    assert snapshot["last_error"]["code"] == "DOWNLOAD_HTTP_5XX"
    assert snapshot["dead_letter"]["stream"] == "jobs.dlq"


@pytest.mark.req("FB-3.1", "FB-1.1")
def test_a_timeout_is_retried_and_has_its_code(box: Box) -> None:
    snapshot = box.done("/slow/x")

    assert snapshot["last_error"]["code"] == "DOWNLOAD_TIMEOUT"
    assert box.origin.requests["/slow/x"] == 5


@pytest.mark.req("FB-3.2")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_a_4xx_fails_at_once(box: Box, status: int) -> None:
    path = f"/status/{status}/once"

    snapshot = box.done(path)

    assert (snapshot["status"], snapshot["last_error"]["code"]) == ("failed", "DOWNLOAD_HTTP_4XX")
    assert snapshot["last_error"]["context"]["status"] == status
    assert box.origin.requests[path] == 1


@pytest.mark.req("FB-1.2", "FB-7.1")
def test_an_error_record_has_code_message_and_context(box: Box) -> None:
    job = box.accepted("gone=/status/404/record", "/file/fine")
    box.ended(job)

    (error,) = box.errors(job)

    assert error["code"] == "DOWNLOAD_HTTP_4XX"
    assert error["message"] == "the origin answered 404 Not Found"
    context = error["context"]
    assert {"proxy": "direct", "attempt": 1, "status": 404}.items() <= context.items()
    assert (context["task_id"], context["stage"], context["key"]) == ("gone", "download", "gone")
    assert context["url"] == f"{box.origin.url}/status/404/record"
    assert box.snapshot(job)["last_error"] == {
        "code": error["code"],
        "message": error["message"],
        "context": context,
    }


@pytest.mark.req("FB-7.1", "FB-7.2")
def test_some_exhausted_tasks_make_a_job_partial_and_a_permanent_failure_makes_it_failed(box: Box) -> None:
    partial = box.done("/file/ok1", "/status/500/some")
    failed = box.done("/file/ok2", "/status/404/any", "/status/500/other")
    all_failed = box.done("/status/500/all1", "/status/500/all2")

    assert (partial["status"], partial["resources_completed"], partial["resources_failed"]) == (
        "partial",
        1,
        1,
    )
    assert (failed["status"], failed["resources_completed"], failed["resources_failed"]) == ("failed", 1, 2)
    assert (all_failed["status"], all_failed["resources_failed"]) == ("failed", 2)


@pytest.mark.req("FB-6.1", "FB-7.2")
def test_a_dead_letter_is_published_as_protobuf_without_secrets_and_its_offset_is_in_the_snapshot(
    box: Box,
) -> None:
    path = "/status/403/letter"
    url = f"{box.origin.url}{path}?token=secret-in-query".replace("http://", "http://ann:sesame-street@")
    resource = {
        "id": "r1",
        "url": url,
        "headers": {"Authorization": "Bearer abcdefgh12345678", "X-Own": "secret-value"},
    }
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    answer = box.post(
        {"version": 1, "resources": [resource]},
        traceparent=f"00-{trace}-00f067aa0ba902b7-01",
        X_Tenant="acme",
    )
    job = answer.json()["job_id"]
    box.client.headers["X-Tenant"] = "acme"
    try:
        snapshot = box.ended(job)
    finally:
        del box.client.headers["X-Tenant"]

    letter = box.letter(snapshot["dead_letter"]["offset"])

    assert (letter.job_id, letter.task_id) == (job, "r1")
    assert letter.url == f"{box.origin.url}{path}"
    assert list(letter.header_names) == ["Authorization", "X-Own"]
    assert (letter.failure_code, letter.attempts) == ("DOWNLOAD_HTTP_4XX", 1)
    assert letter.failure_message == "the origin answered 403 Forbidden"
    assert letter.failed_at_ms > 1_700_000_000_000
    wanted = {"tenant": "acme", "type": "default", "trace_id": trace, "proxy": "direct", "status": "403"}
    assert wanted.items() <= dict(letter.metadata).items()
    text = letter.SerializeToString()
    assert not any(secret in text for secret in (b"sesame", b"secret-in-query", b"abcdefgh", b"secret-value"))


@pytest.mark.req("FB-6.2")
def test_publishing_is_counted_for_prometheus(box: Box) -> None:
    def published() -> float:
        lines = httpx.get(box.metrics).text.splitlines()
        name = 'fetchbox_dead_letters_published_total{code="DOWNLOAD_HTTP_4XX"}'
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    before = published()

    box.done("/status/404/counted")

    assert published() == before + 1


def test_the_log_is_read_from_an_offset_and_followed(box: Box) -> None:
    job = box.accepted("/flaky/500/1/log", "/file/log")
    with box.client.stream("GET", f"/jobs/{job}/log?follow=true") as response:
        text = "".join(response.iter_text())
    lines = box.lines(job)
    rest = box.client.get(f"/jobs/{job}/log", params={"offset": lines[1]["offset"]}).json()

    assert response.headers["content-type"].startswith("text/event-stream")
    assert text.count("event: attempt") == len(lines) == 5
    assert "event: end" in text
    assert rest["lines"] == lines[2:]
    flaky = [each for each in lines if each["task_id"] == "flaky-500-1-log"]
    assert [(each["stage"], each["attempt"], each["outcome"], each["status"]) for each in flaky] == [
        ("download", 1, "retry", 500),
        ("download", 2, "ok", 200),
        ("upload", 1, "ok", None),
    ]
    assert {(each["key"], each["proxy"]) for each in flaky[:2]} == {("flaky-500-1-log", "direct")}


def test_a_broken_download_is_resumed_where_the_server_allows_it(box: Box) -> None:
    resumed = box.done("/broken/resumable/1")
    again = box.done("/broken/plain/1")

    assert (resumed["status"], again["status"]) == ("completed", "completed")
    assert (
        (box.objects / "broken-resumable-1").read_bytes()
        == (box.objects / "broken-plain-1").read_bytes()
        == LARGE
    )
    first, second = box.origin.seen("/broken/resumable/1")
    assert ("range" in first, second["if-range"]) == (False, '"v1"')
    assert int(second["range"].removeprefix("bytes=").rstrip("-")) > 0
    assert all("range" not in each for each in box.origin.seen("/broken/plain/1"))


def test_an_id_that_ends_in_a_number_sign_and_a_number_is_stored(box: Box) -> None:
    snapshot = box.done("page#1=/file/numbered")

    assert snapshot["status"] == "completed"
    assert (box.objects / "page%231").read_bytes() == b"numbered" * 100


def test_a_checksum_is_verified_and_an_object_that_is_there_is_not_fetched_again(box: Box) -> None:
    content = b"sum" * 100
    manifest = box.manifest("sum=/file/sum")
    manifest["resources"][0]["sha256"] = hashlib.sha256(content).hexdigest()  # type: ignore[index]
    wrong = box.manifest("wrong=/file/wrong")
    wrong["resources"][0]["sha256"] = "0" * 64  # type: ignore[index]

    first, second = (box.ended(box.post(manifest).json()["job_id"]) for _ in range(2))
    refused = box.ended(box.post(wrong).json()["job_id"])

    assert (first["status"], second["status"]) == ("completed", "completed")
    assert box.origin.requests["/file/sum"] == 1
    assert (refused["status"], refused["last_error"]["code"]) == ("failed", "DOWNLOAD_CHECKSUM")
    assert not (box.objects / "wrong").exists()


def test_a_resource_that_is_too_large_is_cut_off(box: Box) -> None:
    snapshot = box.done("/endless/x")

    assert snapshot["last_error"]["code"] == "DOWNLOAD_TOO_LARGE"
    assert not (box.objects / "endless-x").exists()


def test_redirects_are_followed_but_other_origins_do_not_get_the_headers(box: Box) -> None:
    box.origin.places |= {
        "near": "/file/near",
        "far": f"http://localhost:{box.origin.port}/file/far",
        "loop": "/to/loop",
        "odd": "ftp://example.org/x",
    }
    manifest = box.manifest("/to/near", "/to/far", "/to/loop", "/to/odd")
    for each in manifest["resources"]:  # type: ignore[attr-defined]
        each["headers"] = {"X-Key": "mine"}

    job = box.post(manifest).json()["job_id"]
    box.ended(job)

    assert box.origin.seen("/file/near")[0]["x-key"] == "mine"
    assert "x-key" not in box.origin.seen("/file/far")[0]
    assert box.origin.requests["/to/loop"] == 6
    assert {each["context"]["task_id"]: each["code"] for each in box.errors(job)} == {
        "to-loop": "DOWNLOAD_INVALID_URL",
        "to-odd": "DOWNLOAD_INVALID_URL",
    }


@pytest.mark.req("FB-3.1")
def test_attempts_rotate_over_the_proxies_of_a_pool(box: Box) -> None:
    job = box.accepted("/file/proxied", type="proxied")

    snapshot = box.ended(job)

    assert snapshot["status"] == "completed"
    downloads = [each for each in box.lines(job) if each["stage"] == "download"]
    assert [each["proxy"] for each in downloads] == ["proxies/eu#1", "proxies/eu#2"]
    assert [each["via"] for each in box.origin.seen("/file/proxied")] == ["two"]


@pytest.mark.req("FB-1.1")
def test_a_pool_whose_proxies_all_failed_is_exhausted(box: Box) -> None:
    job = box.accepted("/file/never", type="exhausted")

    snapshot = box.ended(job)

    assert snapshot["last_error"]["code"] == "DOWNLOAD_PROXY_EXHAUSTED"
    assert "the pool broken" in snapshot["last_error"]["message"]
    lines = box.lines(job)
    # The policy says how often it is tried, not the number of proxies.
    assert [each["code"] for each in lines] == ["DOWNLOAD_HTTP_5XX"] + ["DOWNLOAD_PROXY_EXHAUSTED"] * 4
    assert {each["proxy"] for each in lines} == {"proxies/broken#1", "proxies/broken#2"}
    assert snapshot["last_error"]["context"]["proxy"] == lines[-1]["proxy"]
    assert box.origin.requests["/file/never"] == 0


@pytest.mark.req("FB-3.1")
def test_an_origin_is_tried_as_often_as_the_policy_says_through_fewer_proxies(box: Box) -> None:
    job = box.accepted("/status/500/proxied", "/flaky/503/4/proxied", type="good")

    snapshot = box.ended(job)

    codes = {line["task_id"]: line["code"] for line in box.lines(job)}
    assert (snapshot["resources_completed"], snapshot["resources_failed"]) == (1, 1)
    assert codes == {"status-500-proxied": "DOWNLOAD_HTTP_5XX", "flaky-503-4-proxied": None}
    assert box.origin.requests["/status/500/proxied"] == box.origin.requests["/flaky/503/4/proxied"] == 5
    assert {each["via"] for each in box.origin.seen("/status/500/proxied")} == {"two", "three"}


def test_tenants_that_share_a_bucket_do_not_write_over_each_other_s_objects(box: Box) -> None:
    jobs = {
        tenant: box.post(
            box.manifest(f"shared=/file/{tenant}", storage={"prefix": "same"}), X_Tenant=tenant
        ).json()["job_id"]
        for tenant in ("default", "acme", "bolt")
    }

    def is_done(tenant: str) -> bool:
        answer = box.client.get(f"/jobs/{jobs[tenant]}", headers={"X-Tenant": tenant})
        return bool(answer.json()["resources_completed"])

    until(lambda: all(map(is_done, jobs)))
    places = ["same/shared", "tenants/acme/same/shared", "tenants/bolt/same/shared"]
    assert [(box.objects / place).read_bytes() for place in places] == [
        tenant.encode() * 100 for tenant in jobs
    ]


@pytest.mark.req("FB-3.2", "FB-5.1")
def test_a_handler_that_refuses_or_fails_in_the_worker_makes_a_dead_letter_at_once(box: Box) -> None:
    job = box.accepted("refused=/file/late1", "failed=/file/late2", type="late")

    snapshot = box.ended(job)

    assert snapshot["status"] == "failed"
    codes = {each["context"]["task_id"]: each["code"] for each in box.errors(job)}
    assert codes == {"refused": "HANDLER_REFUSED", "failed": "HANDLER_ERROR"}
    assert [each["attempt"] for each in box.lines(job)] == [1, 1]
    assert box.origin.requests["/file/late1"] == 0


def test_objects_in_a_bucket_over_http_are_uploaded_in_parts_once_and_whole(box: Box, s3: S3Front) -> None:
    snapshot = box.done("/large/s3", "small=/file/s3", type="s3")
    again = box.done("/large/s3", "small=/file/s3", type="s3")

    assert (snapshot["status"], again["status"]) == ("completed", "completed")
    large, small = (obstore.get(opened(s3), key) for key in ("large-s3", "small"))
    assert bytes(large.bytes()) == LARGE * 4
    assert small.attributes["sha256"] == hashlib.sha256(b"s3" * 100).hexdigest()
    # The second job found both objects there; the large one went up in two parts.
    assert (s3.requests["PUT /fetch/small"], s3.requests["PUT /fetch/large-s3"]) == (1, 2)
    assert s3.requests["POST /fetch/large-s3"] == 2


@pytest.mark.req("FB-4.1")
def test_an_upload_is_retried_on_5xx_and_throttling_and_the_client_retries_nothing(
    box: Box, s3: S3Front
) -> None:
    s3.faults["/fetch/heals"] = [(500, "InternalError"), (503, "SlowDown")]
    s3.faults["/fetch/dies"] = [(-500, "InternalError")]
    job = box.accepted("heals=/file/heals", "dies=/file/dies", type="s3")

    snapshot = box.ended(job)

    assert (snapshot["status"], snapshot["resources_completed"]) == ("partial", 1)
    assert s3.requests["PUT /fetch/heals"] == s3.requests["PUT /fetch/dies"] == 3
    assert snapshot["last_error"]["code"] == "UPLOAD_S3_ERROR"
    # The download is not repeated for an upload.
    assert box.origin.requests["/file/heals"] == box.origin.requests["/file/dies"] == 1


@pytest.mark.req("FB-4.2")
def test_denied_access_is_not_retried(box: Box, s3: S3Front) -> None:
    s3.faults["/fetch/denied"] = [(-403, "AccessDenied")]
    denied = box.done("denied=/file/denied", type="s3")

    assert (denied["status"], denied["last_error"]["code"]) == ("failed", "UPLOAD_ACCESS_DENIED")
    assert s3.requests["PUT /fetch/denied"] == 1


@pytest.mark.req("FB-4.2")
def test_a_bucket_that_is_gone_when_the_worker_uploads_is_not_retried(box: Box, s3: S3Front) -> None:
    s3.faults["/fetch/gone/"] = [(-404, "NoSuchBucket")]

    snapshot = box.done("r=/file/gone", type="s3", storage={"prefix": "gone"})

    assert (snapshot["status"], snapshot["last_error"]["code"]) == ("failed", "UPLOAD_INVALID_BUCKET")
    assert s3.requests["PUT /fetch/gone/r"] == 1


@pytest.mark.req("FB-2.2", "FB-8.2")
def test_a_manifest_that_cannot_be_stored_for_now_is_tried_three_times_and_then_answered_with_503(
    box: Box, s3: S3Front
) -> None:
    s3.faults["/fetch/manifests/heals"] = [(503, "SlowDown"), (500, "InternalError")]
    s3.faults["/fetch/manifests/down"] = [(-503, "SlowDown")]
    s3.faults["/fetch/manifests/denied"] = [(-403, "AccessDenied")]
    manifest = box.manifest("m=/file/m", type="s3")

    healed, down, denied = (box.post(manifest, X_Tenant=tenant) for tenant in ("heals", "down", "denied"))

    assert healed.status_code == 202
    assert (down.status_code, down.json()["code"]) == (503, "STORAGE_UNAVAILABLE")
    assert down.headers["retry-after"] == "5"
    assert (denied.status_code, denied.json()["code"]) == (503, "STORAGE_UNAVAILABLE")
    tries = {
        tenant: sum(
            count for path, count in s3.requests.items() if path.startswith(f"PUT /fetch/manifests/{tenant}/")
        )
        for tenant in ("heals", "down", "denied")
    }
    assert tries == {"heals": 3, "down": 3, "denied": 1}


def opened(s3: S3Front) -> S3Store:
    return S3Store(
        "fetch",
        endpoint=s3.url,
        access_key_id="test",
        secret_access_key="testtesttest",
        region="us-east-1",
        client_options={"allow_http": True},
    )
