# SPDX-License-Identifier: Apache-2.0
"""Transfers: what counts as a whole resource, who may write its file, what the disk keeps, and what is swept from the spool."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import Settings
from apps.fetchbox.tests.box import task
from apps.fetchbox.tests.servers import Origin
from apps.fetchbox.transfer.download import POOLS, Body, Downloader, Part
from apps.fetchbox.transfer.storage import Bucket
from redrive import Snooze, connect

WHOLE = b"0123456789"
RESUMABLE = {"Accept_Ranges": "bytes", "ETag": '"v1"'}


def worked(tmp_path: Path, *urls: str, before: Callable[[Settings], None] | None = None) -> dict[str, Any]:
    """Let a worker fetch these; return the counts, the codes and attempts of dead letters, and the content of objects by place."""
    settings = Settings(
        folder=str(tmp_path / "data"), allow_private=True, backoff_seconds=0.001, timeout_seconds=5
    )
    pipeline = pipeline_of(settings)
    settings.root.mkdir()
    if before is not None:
        before(settings)
    with connect(settings.database) as rd:
        rd.submit_many(pipeline, [task(url=url, key=f"k{place}") for place, url in enumerate(urls)])
        rd.work([pipeline], until_idle=True)
        letters = rd.letters.list().letters
        dead = [(line.code, len(rd.jobs.show(line.job).attempts)) for line in letters]
        counts = rd.jobs.counts()
    objects = {path.name: path.read_bytes() for path in (settings.root / "objects").glob("k*")}
    return {"counts": counts, "dead": dead, "objects": objects}


def fetched(origin: Origin, tmp_path: Path, name: str, headers: Mapping[str, str] | None = None) -> Body:
    async def scene() -> Body:
        async with Downloader(Settings(allow_private=True)) as downloader:
            part = Part(tmp_path, "x.part")
            with part.held() as file:
                return await downloader.fetch(f"{origin.url}/answer/{name}", headers or {}, part, file, None)

    return asyncio.run(scene())


def test_a_cookie_that_one_task_is_given_is_not_sent_with_others(origin: Origin, tmp_path: Path) -> None:
    origin.answers["cookie"] = [(200, b"x", {"Set_Cookie": "session=of-one-tenant; Path=/"})]

    async def scene() -> None:
        async with Downloader(Settings(allow_private=True)) as downloader:
            part = Part(tmp_path, "x.part")
            for _ in range(2 * POOLS):
                with part.held() as file:
                    await downloader.fetch(f"{origin.url}/answer/cookie", {}, part, file, None)

    asyncio.run(scene())

    assert len(origin.seen("/answer/cookie")) == 2 * POOLS
    assert not any("cookie" in headers for headers in origin.seen("/answer/cookie"))


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("text/html; charset=utf-8", "text/html; charset=utf-8"),
        ("text/\x7f", "application/octet-stream"),
        ("text/\x01html", "application/octet-stream"),
        ("text/\xe9", "application/octet-stream"),
        ("x" * 256, "application/octet-stream"),
    ],
)
def test_a_content_type_that_a_store_cannot_take_is_not_passed_on(
    origin: Origin, tmp_path: Path, sent: str, kept: str
) -> None:
    # For one of them the library of the stores panics, and the task would have failed as a bug.
    origin.answers["typed"] = [(200, b"x", {"Content_Type": sent})]

    assert fetched(origin, tmp_path, "typed").content_type == kept


def test_a_header_is_sent_as_it_was_given_also_beyond_ascii(origin: Origin, tmp_path: Path) -> None:
    origin.answers["latin"] = [(200, b"x", {"Accept_Ranges": "bytes", "ETag": '"\xe9"'})]

    fetched(origin, tmp_path, "latin", {"x-name": "Zo\xeb"})
    # An ETag beyond ASCII is no validator: what is there is not continued, and the next attempt does not stumble over it.
    fetched(origin, tmp_path, "latin")

    first, second = origin.seen("/answer/latin")
    assert first["x-name"] == "Zo\xeb"
    assert "if-range" not in second


@pytest.mark.parametrize("status", [201, 204, 302, 304])
def test_an_answer_without_the_resource_is_a_failure_at_once(
    origin: Origin, tmp_path: Path, status: int
) -> None:
    path = f"without-{status}"
    origin.answers[path] = [(status, b"", {})]

    found = worked(tmp_path, f"{origin.url}/answer/{path}")

    assert (found["dead"], found["objects"]) == ([("DOWNLOAD_HTTP_OTHER", 1)], {})


def test_a_part_that_nobody_asked_for_is_not_the_resource(origin: Origin, tmp_path: Path) -> None:
    origin.answers["unasked"] = [(206, WHOLE[:5], {"Content_Range": "bytes 0-4/10"})]

    found = worked(tmp_path, f"{origin.url}/answer/unasked")

    assert (found["dead"], found["objects"]) == ([("DOWNLOAD_NETWORK", 5)], {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (WHOLE[4:8], "bytes 4-7/10"),
        (WHOLE[2:], "bytes 2-9/10"),
        (WHOLE[3:9], "bytes 3-8/10"),
        (WHOLE[4:], "bytes 4-9/*"),
        (WHOLE[4:], ""),
        (WHOLE[4:8], "bytes 4-9/10"),
    ],
)
def test_a_part_that_is_not_exactly_the_rest_is_thrown_away_and_the_next_attempt_begins_anew(
    origin: Origin, tmp_path: Path, content: bytes, said: str
) -> None:
    name = f"rest-{hashlib.sha256(said.encode() + content).hexdigest()[:8]}"
    origin.answers[name] = [(206, content, {"Content_Range": said}), (200, WHOLE, RESUMABLE)]

    def four_are_there(settings: Settings) -> None:
        (settings.root / "spool").mkdir()
        (settings.root / "spool/1.part").write_bytes(WHOLE[:4])
        (settings.root / "spool/1.part.etag").write_text('"v1"')

    found = worked(tmp_path, f"{origin.url}/answer/{name}", before=four_are_there)

    first, second = origin.seen(f"/answer/{name}")
    assert (first["range"], "range" in second) == ("bytes=4-", False)
    assert found["objects"] == {"k0": WHOLE}


def test_a_file_that_is_not_whole_is_downloaded_again_before_it_is_uploaded(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = Downloader.fetch
    calls = 0

    async def cut(self: Downloader, *arguments: Any) -> Body:
        nonlocal calls
        calls += 1
        body = await fetch(self, *arguments)
        if calls == 1:
            arguments[3].truncate(3)
        return body

    monkeypatch.setattr(Downloader, "fetch", cut)

    found = worked(tmp_path, f"{origin.url}/file/cut")

    assert (calls, found["objects"]) == (2, {"k0": b"cut" * 100})


def test_an_empty_resource_is_an_empty_object(origin: Origin, tmp_path: Path) -> None:
    origin.answers["empty"] = [(200, b"", {})]

    assert worked(tmp_path, f"{origin.url}/answer/empty")["objects"] == {"k0": b""}
    assert not list((tmp_path / "data/spool").iterdir())


def test_only_one_attempt_holds_a_part(tmp_path: Path) -> None:
    part = Part(tmp_path, "x.part")

    with part.held() as file:
        file.write(b"mine")
        with pytest.raises(Snooze), Part(tmp_path, "x.part").held():
            pass
        part.remove()
        with Part(tmp_path, "x.part").held() as second:
            second.write(b"new")

    with part.held():
        assert part.path.read_bytes() == b"new"


def test_an_object_in_a_folder_is_on_the_disk_when_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        found = os.fstat(handle)
        synced.append((found.st_ino, stat.S_ISDIR(found.st_mode)))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    root = tmp_path / "objects"
    bucket = Bucket(root.as_uri(), timeout=1)
    (tmp_path / "file").write_bytes(b"x")

    def wanted(key: str) -> list[tuple[int, bool]]:
        path = root / key
        return [(path.stat().st_ino, False), (path.parent.stat().st_ino, True), (root.stat().st_ino, True)]

    asyncio.run(bucket.put("a/small", b"x"))
    assert synced == wanted("a/small")
    synced.clear()
    digest = hashlib.sha256(b"x").hexdigest()
    asyncio.run(bucket.put_file("b/file", tmp_path / "file", sha256=digest, content_type="text/plain"))
    assert synced == wanted("b/file")
    synced.clear()
    assert asyncio.run(bucket.has("b/file", digest))
    assert synced == wanted("b/file")


def test_a_folder_takes_the_file_itself_and_copies_it_only_from_another_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket((tmp_path / "objects").as_uri(), timeout=1)
    file = tmp_path / "file"

    def stored(key: str) -> bool:
        file.write_bytes(key.encode())
        before = file.stat().st_ino
        asyncio.run(bucket.put_file(key, file, sha256="", content_type="text/plain"))
        path = tmp_path / "objects" / key
        assert path.read_bytes() == key.encode()
        return path.stat().st_ino == before

    def refuse(_self: Path, _target: Path) -> None:
        raise OSError(errno.EXDEV, "another file system")

    assert stored("a/same")
    monkeypatch.setattr(Path, "replace", refuse)
    assert not stored("a/other")
    assert file.exists()


def test_a_worker_sweeps_what_is_left_in_the_spool_for_a_day(origin: Origin, tmp_path: Path) -> None:
    def left(settings: Settings) -> None:
        spool = settings.root / "spool"
        spool.mkdir()
        for name, age in (
            ("100.part", 90_000),
            ("100.part.etag", 90_000),
            ("101.part", 80_000),
        ):
            (spool / name).write_bytes(b"x")
            os.utime(spool / name, (time.time() - age,) * 2)

    worked(tmp_path, f"{origin.url}/file/swept", before=left)

    assert [path.name for path in (tmp_path / "data/spool").iterdir()] == ["101.part"]
