# SPDX-License-Identifier: Apache-2.0
"""A running FetchBox as a client sees it, and what its processes are configured with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from apps.fetchbox.dead_letters.deadletter_pb2 import DeadLetterTask
from apps.fetchbox.dead_letters.messages import decode
from apps.fetchbox.manifest import Task
from apps.fetchbox.tests.servers import Broker, Origin, waited
from redrive.sinks.nats import connected

CONFIG = """
[types.default]
[types.default.headers]
X-Type = "default"

[types.s3]
bucket = "s3://fetch"

[types.google]
bucket = "gs://fetch"

[types.nogoogle]
bucket = "gs://missing"

[types.azure]
bucket = "az://fetch"

[types.noazure]
bucket = "az://missing"

[types.nobucket]
bucket = "s3://missing"

[types.proxied]
pool = "eu"

[types.exhausted]
pool = "broken"

[types.good]
pool = "good"

[types.refusing]
handler = "refusing"

[types.buggy]
handler = "buggy"

[types.astray]
handler = "astray"

[types.late]
handler = "late"

[types.signed]
handler = "signed"

[pools.eu]
tiers = [["{one}"], ["{two}"]]
fallback = "us"

[pools.us]
tiers = [["{three}"]]

[pools.good]
tiers = [["{two}"], ["{three}"]]

[pools.broken]
tiers = [["{one}"], ["{one}"]]
"""
PLUGIN = {
    "fetchbox_test-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: fetchbox-test\nVersion: 1\n",
    "fetchbox_test-1.dist-info/entry_points.txt": "[fetchbox.handlers]\n"
    "refusing = fetchbox_test:Refusing\nbuggy = fetchbox_test:Buggy\nlate = fetchbox_test:Late\nastray = fetchbox_test:Astray\nsigned = fetchbox_test:Signed\n",
    "fetchbox_test.py": '''
from apps.fetchbox.handlers import DefaultHandler, HandlerRefusedError, Planned

class Refusing(DefaultHandler):
    def plan(self, manifest):
        raise HandlerRefusedError("metadata.order is missing")

class Buggy(DefaultHandler):
    def plan(self, manifest):
        return 1 // 0

class Astray(DefaultHandler):
    """Makes a task of a resource that is not in the manifest."""
    def plan(self, manifest):
        return [Planned("nobody", each.url, each.id, each.headers) for each in manifest.resources]

class Late(DefaultHandler):
    """Refuses, or fails, in the worker."""
    def headers(self, task):
        if task.task_id == "refused":
            raise HandlerRefusedError("no metadata for this task")
        return {"X": 1 // 0}

class Signed(DefaultHandler):
    def plan(self, manifest):
        return [Planned(each.id, each.url, f"by-handler/{each.id}", each.headers) for each in manifest.resources]
    def headers(self, task):
        return {"X-Signature": f"signed-{task.task_id}"}
''',
}


@dataclass(frozen=True)
class Box:
    """The service."""

    folder: Path
    environment: dict[str, str]
    client: httpx.Client
    origin: Origin
    broker: Broker
    metrics: str

    @property
    def database(self) -> Path | str:
        return self.environment.get("REDRIVE_DATABASE_URL") or self.folder / "data" / "fetchbox.db"

    @property
    def objects(self) -> Path:
        return self.folder / "data" / "objects"

    def manifest(self, *paths: str, **members: object) -> dict[str, object]:
        """Return a manifest of these paths of the origin; an entry may be `id=path`."""
        pairs = [path.rpartition("=")[::2] for path in paths]
        resources = [
            {"id": name or path.strip("/").replace("/", "-"), "url": f"{self.origin.url}{path}"}
            for name, path in pairs
        ]
        return {"version": 1, "resources": resources, **members}

    def post(self, manifest: object, **headers: str) -> httpx.Response:
        return self.client.post(
            "/jobs", json=manifest, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    def accepted(self, *paths: str, **members: object) -> str:
        answer = self.post(self.manifest(*paths, **members))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])

    def snapshot(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/jobs/{job}").json()
        return found

    def ended(self, job: str, *, is_published: bool = True) -> dict[str, Any]:
        """Return the snapshot of a job that has ended, and whose last dead letter was published."""

        def look() -> dict[str, Any] | None:
            found = self.snapshot(job)
            is_over = found["status"] != "running" and found["resources_open"] == 0
            has_letter = not is_published or not found["resources_failed"] or found["dead_letter"] is not None
            return found if is_over and has_letter else None

        found: dict[str, Any] = waited(look)
        return found

    def done(self, *paths: str, **members: object) -> dict[str, Any]:
        return self.ended(self.accepted(*paths, **members))

    def errors(self, job: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get(f"/jobs/{job}/errors").json()["errors"]
        return found

    def lines(self, job: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get(f"/jobs/{job}/log").json()["lines"]
        return found

    def letter(self, offset: int) -> DeadLetterTask:
        """Return the message at an offset of the stream."""

        async def read() -> bytes:
            client = await connected(self.broker.url)
            try:
                return (await client.jetstream().get_msg("jobs-dlq", offset)).data or b""
            finally:
                await client.close()

        return decode(asyncio.run(read()))


def task(**changes: object) -> Task:
    """Return a task without a job."""
    plain = {"job_id": "j", "task_id": "t", "tenant": "x", "type": "default", "url": "", "key": "k"}
    return msgspec.convert({**plain, **changes}, Task)


def until(what: Callable[[], Any]) -> Any:
    """Wait for something to be true."""
    return waited(what)
