# SPDX-License-Identifier: Apache-2.0
"""Transfer speed beside a bare script: the same files, from the same origin to the same kind of store, at the same concurrency.

`make bench-fetchbox` prints both times and their ratio, best of three each, in one run. The origin is a process of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import httpx
import obstore
import uvicorn
from obstore.store import LocalStore

from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import Settings
from apps.fetchbox.tests.box import task
from redrive import connect

CONCURRENCY: Final = 32
SMALL: Final = (1_000, 20_000)
LARGE: Final = (20, 25_000_000)
ROUNDS: Final = 3


def origin(ready: Connection) -> None:
    """Serve as many bytes as the path says, until ended."""
    chunk = b"x" * 65_536

    async def app(scope: dict[str, object], _receive: object, send: object) -> None:
        if scope["type"] != "http":
            return
        size = int(str(scope["path"]).split("/")[1])
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", str(size).encode())],
        }
        await send(start)  # type: ignore[operator]
        while size > 0:
            body = chunk[:size]
            size -= len(body)
            await send({"type": "http.response.body", "body": body, "more_body": size > 0})  # type: ignore[operator]

    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, log_level="critical", lifespan="off"))

    async def serve() -> None:
        running = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.to_thread(threading.Event().wait, 0.01)
        ready.send(server.servers[0].sockets[0].getsockname()[1])
        await running

    asyncio.run(serve())


async def bare(urls: list[str], folder: Path) -> None:
    """Download and upload as a short script would: stream into a file with its SHA-256, put the file, wait for the disk."""
    objects = folder / "objects"
    store = LocalStore(objects, mkdir=True)
    limits = httpx.Limits(max_connections=CONCURRENCY, max_keepalive_connections=CONCURRENCY)
    slots = asyncio.Semaphore(CONCURRENCY)
    (folder / "spool").mkdir(parents=True)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def one(number: int, url: str) -> None:
            async with slots:
                path = folder / "spool" / str(number)
                digest = hashlib.sha256()
                async with client.stream("GET", url) as response:
                    response.raise_for_status()
                    with path.open("wb") as file:
                        async for chunk in response.aiter_raw():
                            digest.update(chunk)
                            file.write(chunk)
                await obstore.put_async(store, str(number), path)
                await asyncio.to_thread(synced, objects / str(number))
                path.unlink()

        await asyncio.gather(*(one(number, url) for number, url in enumerate(urls)))


def synced(path: Path) -> None:
    """Wait until an object, and its name in the folder, are on the disk; FetchBox promises no less."""
    for each in (path, path.parent):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def ours(urls: list[str], folder: Path) -> None:
    """Do the same as tasks of FetchBox, in one worker; every task is durable before it starts."""
    settings = Settings(
        folder=str(folder),
        allow_private=True,
        concurrency=CONCURRENCY,
        origin_concurrency=CONCURRENCY,
        tenant_concurrency=CONCURRENCY,
        timeout_seconds=60,
    )
    pipeline = pipeline_of(settings)
    folder.mkdir(parents=True)
    with connect(settings.database) as rd:
        rd.submit_many(pipeline, [task(url=url, key=str(number)) for number, url in enumerate(urls)])
        rd.work([pipeline], until_idle=True, concurrency=CONCURRENCY)
        done = rd.jobs.counts()
    if done != {"complete": len(urls)}:
        raise RuntimeError(str(done))


def measure(urls: list[str]) -> tuple[float, float]:
    """Return the best time of each, taken in turns."""
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(ROUNDS):
        for name, taken in times.items():
            folder = Path(tempfile.mkdtemp(prefix="fetchbox-speed-")) / name
            began = time.perf_counter()
            if name == "bare":
                asyncio.run(bare(urls, folder))
            else:
                ours(urls, folder)
            taken.append(time.perf_counter() - began)
            shutil.rmtree(folder.parent)
    return min(times["bare"]), min(times["ours"])


def main() -> None:
    """Measure and print."""
    here, there = multiprocessing.Pipe()
    spawned = multiprocessing.get_context("spawn").Process(target=origin, args=(there,), daemon=True)
    spawned.start()
    base = f"http://127.0.0.1:{here.recv()}"
    try:
        for name, (count, size) in (("small", SMALL), ("large", LARGE)):
            script, fetchbox = measure([f"{base}/{size}/{number}" for number in range(count)])
            print(  # noqa: T201 - this is what it is for.
                f"{count:5} {name} files of {size:,} bytes: bare {script:6.2f} s, FetchBox {fetchbox:6.2f} s, "
                f"{fetchbox / script:4.2f}x"
            )
    finally:
        spawned.terminate()


if __name__ == "__main__":
    main()
