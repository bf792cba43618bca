# SPDX-License-Identifier: Apache-2.0
"""The whole service, once per session: origin, proxies, S3 API, broker, API and worker, each a process or a server of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from moto.server import ThreadedMotoServer

from apps.fetchbox.tests import clouds
from apps.fetchbox.tests.box import CONFIG, PLUGIN, Box
from apps.fetchbox.tests.clouds import Cloud
from apps.fetchbox.tests.servers import Broker, Origin, Process, S3Front, proxy
from redrive.engine import observers
from tools import pytest_requirements


def pytest_configure(config: pytest.Config) -> None:
    """Add the requirement marks."""
    pytest_requirements.register(config)


@pytest.fixture(autouse=True)
def untraced() -> Generator[None]:
    """An API that is made here switches traces on for the whole process, which other tests share."""
    before = tuple(observers._installed)
    yield
    observers._installed[:] = before


@pytest.fixture(scope="session")
def origin() -> Generator[Origin]:
    server = Origin()
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3() -> Generator[S3Front]:
    """A real S3 API behind a front with faults; with the bucket `fetch`."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    front = S3Front(moto.get_host_and_port()[1])
    httpx.put(f"{front.url}/fetch")
    yield front
    front.close()
    moto.stop()


@pytest.fixture(scope="session")
def gcs() -> Generator[Cloud]:
    server = clouds.google()
    yield server
    server.close()


@pytest.fixture(scope="session")
def azure() -> Generator[Cloud]:
    server = clouds.azure()
    yield server
    server.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    server = Broker(tmp_path_factory.mktemp("nats"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def box(
    tmp_path_factory: pytest.TempPathFactory,
    origin: Origin,
    s3: S3Front,
    gcs: Cloud,
    azure: Cloud,
    broker: Broker,
    installation: dict[str, str],
) -> Generator[Box]:
    folder = tmp_path_factory.mktemp("fetchbox")
    with ExitStack() as stack:
        proxies = {}
        for name, mode in (("one", "broken"), ("two", "good"), ("three", "good")):
            started = proxy(name, mode)
            stack.callback(started.close)
            proxies[name] = f"http://127.0.0.1:{started.line}"
        config = folder / "fetchbox.toml"
        config.write_text(CONFIG.format(**proxies))
        plugin = folder / "plugin"
        for name, text in PLUGIN.items():
            (plugin / name).parent.mkdir(parents=True, exist_ok=True)
            (plugin / name).write_text(text)
        environment = environment_of(folder, config, plugin, s3, broker) | clouds.environment(gcs, azure)
        environment |= installation
        api = Process(
            [sys.executable, "-m", "apps.fetchbox", "serve", "--port", "0"], environment, folder / "api.log"
        )
        stack.callback(api.close)
        metrics = free_port()
        command = [sys.executable, "-m", "apps.fetchbox", "worker", "--metrics-port", str(metrics)]
        worker = Process(command, environment, folder / "worker.log")
        stack.callback(worker.close)
        url = api.line.removeprefix("listening on ")
        client = stack.enter_context(httpx.Client(base_url=url, timeout=30))
        yield Box(folder, environment, client, origin, broker, f"http://127.0.0.1:{metrics}/metrics")


def environment_of(folder: Path, config: Path, plugin: Path, s3: S3Front, broker: Broker) -> dict[str, str]:
    """Return the environment of the processes; nothing of this machine's settings but the path."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{plugin}{os.pathsep}{Path.cwd()}",
        "FETCHBOX_FOLDER": str(folder / "data"),
        "FETCHBOX_CONFIG": str(config),
        "FETCHBOX_NATS_URL": broker.url,
        "FETCHBOX_ALLOW_PRIVATE": "true",
        "FETCHBOX_BACKOFF_SECONDS": "0.01",
        "FETCHBOX_BREAKER_MIN_CALLS": "100000",
        "FETCHBOX_TIMEOUT_SECONDS": "1",
        "FETCHBOX_OBJECT_MAX": "10000000",
        "FETCHBOX_DOWNLOAD_RETRY_LIMIT": "5",
        "FETCHBOX_STORAGE_RETRY_LIMIT": "3",
        "AWS_ENDPOINT_URL": s3.url,
        "FETCHBOX_STORAGE_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "testtesttest",
        "AWS_REGION": "us-east-1",
    }


def free_port() -> int:
    """Return a port that was free just now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
