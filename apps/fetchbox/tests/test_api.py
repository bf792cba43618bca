# SPDX-License-Identifier: Apache-2.0
"""What the API answers: every refusal is a problem document with a code of FetchBox, at once, and nothing is stored."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from apps.fetchbox.api.routes import make_app
from apps.fetchbox.codes import CODES
from apps.fetchbox.settings import Settings
from apps.fetchbox.tests.box import Box, until
from redrive import connect
from redrive.errors import StoreUnavailableError
from redrive.store.postgres.store import PostgresStore
from redrive.store.sqlite.store import SqliteStore

URL = "http://example.org/x"


def manifest(**changes: object) -> dict[str, Any]:
    return {"version": 1, "resources": [{"id": "a", "url": URL}], **changes}


def resource(**changes: object) -> dict[str, Any]:
    return manifest(resources=[{"id": "a", "url": URL, **changes}])


@pytest.mark.req("FB-2.1", "FB-1.1")
@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"resources": []}, 422, "VALIDATION_MISSING_FIELD", "version"),
        ({"version": 1}, 422, "VALIDATION_MISSING_FIELD", "resources"),
        ({"version": 1, "resources": [{"id": "a"}]}, 422, "VALIDATION_MISSING_FIELD", "resources[0].url"),
        (manifest(resources=[]), 422, "VALIDATION_INVALID_FIELD", "resources"),
        (manifest(version=2), 422, "VALIDATION_INVALID_FIELD", "version"),
        (manifest(version="1"), 422, "VALIDATION_INVALID_FIELD", "version"),
        (manifest(nonsense=1), 422, "VALIDATION_INVALID_FIELD", ""),
        (manifest(storage={"prefix": "../up"}), 422, "VALIDATION_INVALID_FIELD", "storage.prefix"),
        (manifest(storage={"prefix": "/root"}), 422, "VALIDATION_INVALID_FIELD", "storage.prefix"),
        (manifest(storage={"prefix": "manifests/x"}), 422, "VALIDATION_INVALID_FIELD", "resources"),
        (manifest(storage={"prefix": "Manifests"}), 422, "VALIDATION_INVALID_FIELD", "resources"),
        (resource(id="manifests"), 422, "VALIDATION_INVALID_FIELD", "resources"),
        (resource(id="tenants/acme/x"), 422, "VALIDATION_INVALID_FIELD", "resources"),
        (manifest(storage={"prefix": "tenants"}), 422, "VALIDATION_INVALID_FIELD", "resources"),
        (resource(id="./manifests/default/default/x.json"), 422, "VALIDATION_INVALID_FIELD", "resources"),
        (manifest(metadata=[1]), 422, "VALIDATION_INVALID_FIELD", "metadata"),
        (resource(id=""), 422, "VALIDATION_INVALID_FIELD", "resources[0].id"),
        (resource(id="x" * 129), 422, "VALIDATION_INVALID_FIELD", "resources[0].id"),
        (resource(id="a\nb"), 422, "VALIDATION_INVALID_FIELD", "resources[0].id"),
        (resource(url="ftp://example.org/x"), 422, "VALIDATION_INVALID_URL", "resources[0].url"),
        (resource(url="http://"), 422, "VALIDATION_INVALID_URL", "resources[0].url"),
        (resource(url="http://[::1"), 422, "VALIDATION_INVALID_URL", "resources[0].url"),
        (resource(url=URL + "x" * 9000), 422, "VALIDATION_INVALID_URL", "resources[0].url"),
        (resource(sha256="abc"), 422, "VALIDATION_INVALID_FIELD", "resources[0].sha256"),
        (
            resource(headers={f"X-{n}": "1" for n in range(11)}),
            422,
            "VALIDATION_TOO_LARGE",
            "resources[0].headers",
        ),
        (resource(tags={f"t{n}": "1" for n in range(11)}), 422, "VALIDATION_TOO_LARGE", "resources[0].tags"),
        (resource(headers={"X": "v" * 1025}), 422, "VALIDATION_TOO_LARGE", "resources[0].headers"),
        (resource(tags={"t": "ä" * 513}), 422, "VALIDATION_TOO_LARGE", "resources[0].tags"),
        (resource(headers={"Host": "other"}), 422, "VALIDATION_INVALID_FIELD", "resources[0].headers"),
        (resource(headers={"X": "a\r\nB: c"}), 422, "VALIDATION_INVALID_FIELD", "resources[0].headers"),
        (
            manifest(resources=[{"id": "a", "url": URL}] * 2),
            422,
            "VALIDATION_DUPLICATE_ID",
            "resources[1].id",
        ),
        (
            manifest(resources=[{"id": "a/b", "url": URL}, {"id": "a//b", "url": URL}]),
            422,
            "VALIDATION_DUPLICATE_ID",
            "resources[1].id",
        ),
        (
            manifest(resources=[{"id": str(n), "url": URL} for n in range(1001)]),
            422,
            "VALIDATION_TOO_LARGE",
            None,
        ),
        (manifest(type="nothing"), 403, "AUTH_UNKNOWN_TYPE", None),
        (manifest(type="refusing"), 422, "HANDLER_REFUSED", None),
        (manifest(type="buggy"), 500, "HANDLER_ERROR", None),
        (manifest(type="astray"), 500, "HANDLER_ERROR", None),
    ],
)
def test_a_manifest_that_breaks_a_rule_is_refused_by_field_and_code(
    box: Box, body: object, status: int, code: str, field: str | None
) -> None:
    answer = box.post(body)

    document = answer.json()
    assert (answer.status_code, document["code"], document["status"]) == (status, code, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["title"] == CODES[code].line
    assert {"type", "title", "detail", "request_id"} <= set(document)
    assert document.get("field") == field
    assert "Traceback" not in answer.text


@pytest.mark.req("FB-2.1")
def test_a_refused_manifest_leaves_nothing_behind(box: Box) -> None:
    with connect(box.database) as rd:
        before = [report.id for report in rd.runs.latest(1)]
        kept = sorted(str(each) for each in (box.objects / "manifests").rglob("*.json"))
        for body in (manifest(type="nothing"), manifest(version=3), manifest(type="refusing")):
            box.post(body)

        assert [report.id for report in rd.runs.latest(1)] == before
        assert sorted(str(each) for each in (box.objects / "manifests").rglob("*.json")) == kept


def sent(box: Box, content: bytes, **headers: str) -> tuple[int, str]:
    given = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    answer = box.client.post("/jobs", content=content, headers=given)
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def test_a_body_that_cannot_be_read_is_refused(box: Box) -> None:
    good = json.dumps(manifest()).encode()

    assert sent(box, b"{") == (400, "VALIDATION_INVALID_JSON")
    assert sent(box, b"\xff") == (400, "VALIDATION_INVALID_JSON")
    assert sent(box, good[:-1]) == (400, "VALIDATION_INVALID_JSON")
    assert sent(box, good, Content_Type="text/plain") == (415, "VALIDATION_CONTENT_TYPE")
    assert sent(box, good, Content_Encoding="br") == (415, "VALIDATION_CONTENT_TYPE")
    assert sent(box, good, Content_Encoding="gzip") == (400, "VALIDATION_INVALID_JSON")
    assert sent(box, gzip.compress(good)[:-5], Content_Encoding="gzip") == (400, "VALIDATION_INVALID_JSON")
    assert sent(box, good, Idempotency_Key="x" * 256) == (400, "VALIDATION_INVALID_FIELD")
    for name in ("a/b", ".", ".."):
        assert sent(box, good, X_Tenant=name) == (401, "AUTH_INVALID_CREDENTIALS")


def test_a_body_that_is_too_large_is_refused_while_it_is_read_compressed_or_not(box: Box) -> None:
    bomb = gzip.compress(b" " * 200_000_000)

    assert sent(box, b" " * 5_000_001) == (413, "VALIDATION_TOO_LARGE")
    assert sent(box, bomb, Content_Encoding="gzip") == (413, "VALIDATION_TOO_LARGE")


@pytest.mark.parametrize("path", ["/jobs/fb-none", "/jobs/fb-none/errors", "/jobs/fb-none/log"])
def test_a_job_that_is_not_there_is_a_problem(box: Box, path: str) -> None:
    answer = box.client.get(path)

    assert (answer.status_code, answer.json()["code"]) == (404, "VALIDATION_UNKNOWN_JOB")


def test_unknown_routes_methods_and_arguments_are_problems_too(box: Box) -> None:
    job = box.accepted("/file/args")
    answers = [
        box.client.get("/nothing"),
        box.client.delete(f"/jobs/{job}"),
        *(
            box.client.get(f"/jobs/{job}/log", params={"offset": offset})
            for offset in ("x", "-1", "99999999999999999999")
        ),
    ]

    assert [each.status_code for each in answers] == [404, 405, 400, 400, 400]
    assert {each.headers["content-type"] for each in answers} == {"application/problem+json"}


def test_a_last_event_id_that_is_too_long_is_not_one(box: Box) -> None:
    job = box.accepted("/file/events")
    box.ended(job)

    answer = box.client.get(
        f"/jobs/{job}/log", params={"follow": "true"}, headers={"Last-Event-ID": "9" * 5_000}
    )

    assert answer.status_code == 200
    assert answer.text.count("event: attempt") == 2
    assert "event: end" in answer.text


def test_the_api_serves_metrics(box: Box) -> None:
    metrics = box.client.get("/metrics")

    assert metrics.status_code == 200
    assert "# TYPE jobs_failed_total counter" in metrics.text


def test_the_components_are_asked_really(box: Box) -> None:
    healthz = until(lambda: found if (found := box.client.get("/healthz")).status_code == 200 else None)

    assert healthz.json()["status"] == "ok"
    assert {name: each["status"] for name, each in healthz.json()["components"].items()} == {
        "store": "ok",
        "storage": "ok",
        "broker": "ok",
        "workers": "ok",
    }
    assert box.client.get("/livez").json() == {"status": "ok"}
    assert box.client.get("/readyz").status_code == 200


TENANTS = """
[types.default]
[types.other]
[tenants.acme]
token_env = "ACME_TOKEN"
types = ["default"]
[tenants.bigco]
token_env = "BIGCO_TOKEN"
"""


def test_with_tenants_a_request_needs_a_token_and_sees_its_own_jobs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text(TENANTS)
    monkeypatch.setenv("ACME_TOKEN", "acme-token-1234")
    monkeypatch.setenv("BIGCO_TOKEN", "bigco-token-1234")
    app = make_app(Settings(folder=str(tmp_path / "data"), config=str(tmp_path / "c.toml")))
    acme, bigco = ({"Authorization": f"Bearer {name}-token-1234"} for name in ("acme", "bigco"))

    with TestClient(app) as client:
        missing = client.post("/jobs", json=manifest())
        wrong = client.post("/jobs", json=manifest(), headers={"Authorization": "Bearer nothing"})
        mine = client.post("/jobs", json=manifest(), headers=acme)
        barred = client.post("/jobs", json=manifest(type="other"), headers=acme)
        allowed = client.post("/jobs", json=manifest(type="other"), headers=bigco)
        seen = client.get(f"/jobs/{mine.json()['job_id']}", headers=bigco)
        own = client.get(f"/jobs/{mine.json()['job_id']}", headers=acme)
        unhealthy = client.get("/healthz")

    assert [(each.status_code, each.json()["code"]) for each in (missing, wrong, barred)] == [
        (401, "AUTH_MISSING_CREDENTIALS"),
        (401, "AUTH_INVALID_CREDENTIALS"),
        (403, "AUTH_UNKNOWN_TYPE"),
    ]
    assert (mine.status_code, allowed.status_code, seen.status_code) == (202, 202, 404)
    assert (own.json()["tenant"], own.json()["status"]) == ("acme", "running")
    # No worker runs, and no broker is configured.
    assert unhealthy.status_code == 503
    assert unhealthy.json()["components"]["workers"] == {"status": "failed", "code": "NO_WORKER"}
    assert unhealthy.json()["components"]["broker"] == {"status": "off"}


@pytest.mark.req("FB-2.2")
def test_a_store_that_is_away_is_tried_three_times_and_then_answered_with_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str | None
) -> None:
    app = make_app(Settings(folder=str(tmp_path / "data"), nats_url="nats://127.0.0.1:1"))
    outages = 0
    kind = PostgresStore if database_url else SqliteStore
    apply = kind.apply

    def away(self: Any, *steps: Any) -> Any:
        nonlocal outages
        if steps[0].name == "open_run" and outages > 0:
            outages -= 1
            raise StoreUnavailableError(database="x", cause="away")
        return apply(self, *steps)

    monkeypatch.setattr(kind, "apply", away)
    with TestClient(app) as client:
        outages = 2
        healed = client.post("/jobs", json=manifest())
        outages = 3
        down = client.post("/jobs", json=manifest())
        left = outages
        ready = client.get("/readyz")
        live = client.get("/livez")

    assert healed.status_code == 202
    assert (down.status_code, down.json()["code"], left) == (503, "SYSTEM_UNAVAILABLE", 0)
    assert (ready.status_code, ready.json()["detail"]) == (503, "not ready: broker")
    assert live.status_code == 200


def test_an_unexpected_error_is_a_problem_without_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(Settings(folder=str(tmp_path / "data")))
    with TestClient(app, raise_server_exceptions=False) as client:
        monkeypatch.setattr("apps.fetchbox.api.routes.parse", lambda *_: 1 // 0)
        answer = client.post("/jobs", json=manifest())

    assert (answer.status_code, answer.json()["code"]) == (500, "SYSTEM_PANIC")
    assert "division" not in answer.text
