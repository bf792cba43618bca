# SPDX-License-Identifier: Apache-2.0
"""Direct connections reach public addresses only: at first, after a redirect, and whatever a name resolves to the second time."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import Settings
from apps.fetchbox.tests.box import task
from apps.fetchbox.tests.servers import Origin
from apps.fetchbox.transfer import addresses
from apps.fetchbox.transfer.addresses import is_public
from apps.fetchbox.transfer.download import Downloader, Part
from redrive import Fail, connect


@pytest.mark.parametrize(
    ("address", "is_good"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("64:ff9b::5db8:d822", True),
        ("64:ff9b:1::a00:1", False),
        ("fec0::1", False),
        ("::a00:1", False),
        ("::ffff:0:a00:1", False),
    ],
)
def test_special_addresses_are_not_public_however_they_are_written(address: str, is_good: bool) -> None:
    assert is_public(address) is is_good


def fetch(settings: Settings, url: str, folder: Path) -> str:
    async def scene() -> str:
        async with Downloader(settings) as downloader:
            part = Part(folder, "x.part")
            try:
                with part.held() as file:
                    await downloader.fetch(url, {}, part, file, None)
            except Fail as refusal:
                return refusal.code
            return "ok"

    return asyncio.run(scene())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"])
def test_this_machine_is_refused_under_every_name(origin: Origin, tmp_path: Path, host: str) -> None:
    before = sum(origin.requests.values())

    assert fetch(Settings(), f"http://{host}:{origin.port}/file/x", tmp_path) == "DOWNLOAD_ADDRESS_REFUSED"
    assert sum(origin.requests.values()) == before


def test_it_is_allowed_if_the_settings_say_so(origin: Origin, tmp_path: Path) -> None:
    assert fetch(Settings(allow_private=True), f"{origin.url}/file/x", tmp_path) == "ok"


def test_a_redirect_to_a_private_address_is_refused(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    origin.places["inside"] = f"http://127.0.0.2:{origin.port}/file/inside"

    assert fetch(Settings(), f"{origin.url}/to/inside", tmp_path) == "DOWNLOAD_ADDRESS_REFUSED"
    assert origin.requests["/file/inside"] == 0


def test_the_address_that_was_checked_is_the_one_that_is_used(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server may answer with a public address when it is asked to check, and with a private one right after."""
    answers = ["127.0.0.1", "127.0.0.9"]
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    real = asyncio.BaseEventLoop.getaddrinfo

    async def changing(loop: Any, host: str, port: int, **options: Any) -> Any:
        if host == "rebind.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]
        return await real(loop, host, port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", changing)

    assert fetch(Settings(), f"http://rebind.example:{origin.port}/file/pinned", tmp_path) == "ok"
    assert answers == ["127.0.0.9"]
    assert origin.seen("/file/pinned")[0]["host"] == f"rebind.example:{origin.port}"


def test_a_host_with_one_private_address_among_others_is_refused(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two(_loop: Any, _host: str, port: int, **_options: Any) -> Any:
        found = ("127.0.0.1", "10.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", two)

    assert fetch(Settings(), "http://two.example/x", tmp_path) == "DOWNLOAD_ADDRESS_REFUSED"


@pytest.mark.req("FB-5.2", "FB-5.1")
def test_what_should_never_reach_a_worker_is_a_dead_letter_at_once(origin: Origin, tmp_path: Path) -> None:
    settings = Settings(folder=str(tmp_path / "data"), backoff_seconds=0.01)
    pipeline = pipeline_of(settings)
    url = f"{origin.url}/file/x"
    tasks = [
        task(url="gopher://example.org/"),
        task(url=url, headers={"Host": "other"}),
        task(url=url, type="unknown"),
        task(url=url),
    ]
    settings.root.mkdir()
    with connect(settings.database) as rd:
        rd.submit_many(pipeline, tasks)
        rd.work([pipeline], until_idle=True)
        found = {line.job: (line.code, line.receipts) for line in rd.letters.list().letters}
        attempts = [len(rd.jobs.show(job).attempts) for job in sorted(found)]

    assert [found[job][0] for job in sorted(found)] == [
        "VALIDATION_INVALID_URL",
        "VALIDATION_INVALID_FIELD",
        "AUTH_UNKNOWN_TYPE",
        "DOWNLOAD_ADDRESS_REFUSED",
    ]
    assert attempts == [1, 1, 1, 1]
    # Without a broker, dead letters are files.
    assert all((tmp_path / "data/dead-letters" / receipts["dlq"]).is_file() for _, receipts in found.values())
