# SPDX-License-Identifier: Apache-2.0
"""The gateway by itself: real PDFs become XML, bad ones are refused, and no file can take it down."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from apps.pdf2xml.demo import Process
from apps.pdf2xml.gateway.child import Answer, Order, carry_out
from apps.pdf2xml.gateway.converter import Converter
from apps.pdf2xml.sample import sample_pdf
from apps.pdf2xml.settings import Settings
from apps.pdf2xml.tests import pdfs
from apps.pdf2xml.tests.site import PATIENCE, until


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[Process]:
    folder = tmp_path_factory.mktemp("gateway")
    limits = ("--seconds", "20", "--memory", "400")
    process = Process(
        ("gateway", "--port", "0", "--faults", *limits), Settings().environment(), folder / "log"
    )
    yield process
    process.end()


def convert(gateway: Process, data: bytes, mapping: str = "text") -> httpx.Response:
    return httpx.post(
        f"{gateway.url}/convert", params={"mapping": mapping}, content=data, timeout=PATIENCE, trust_env=False
    )


def test_text_has_each_page_and_layout_has_each_line_with_its_place(gateway: Process) -> None:
    data = pdfs.pdf("One & two\nthree < four", "Last page")

    text = ET.fromstring(convert(gateway, data).text)
    layout = ET.fromstring(convert(gateway, data, "layout").text)

    assert [page.text for page in text] == ["One & two\nthree < four", "Last page"]
    assert text.attrib == {"mapping": "text", "pages": "2"}
    lines = layout.findall("page/line")
    assert [line.text for line in lines] == ["One & two", "three < four", "Last page"]
    first, second = (dict(line.attrib) for line in lines[:2])
    assert 70 < float(first["x"]) < 75
    assert float(second["y"]) - float(first["y"]) == pytest.approx(20, abs=3)
    assert float(first["height"]) > 5


def test_five_hundred_pages_and_other_scripts(gateway: Process) -> None:
    long = ET.fromstring(convert(gateway, pdfs.long_pdf(500)).text)
    assert len(long) == 500
    assert long[499].text == "This is page 500."

    japanese = ET.fromstring(convert(gateway, pdfs.japanese_pdf("日本語の文書")).text)
    assert japanese.findtext("page") == "日本語の文書"


@pytest.mark.parametrize(
    ("data", "status", "message"),
    [
        (pdfs.encrypted_pdf(), 422, "encrypted"),
        (pdfs.empty_pdf(), 422, "damaged"),
        (pdfs.truncated_pdf(), 422, "damaged"),
        (b"GIF89a renamed", 415, "not a PDF"),
        (b"%PDF-1.7\n" + os.urandom(5000), 422, "damaged"),
    ],
    ids=["encrypted", "zero pages", "truncated", "renamed", "noise"],
)
def test_what_cannot_be_converted_is_refused_with_a_message_for_users(
    gateway: Process, data: bytes, status: int, message: str
) -> None:
    answer = convert(gateway, data)

    assert answer.status_code == status
    assert message in answer.json()["detail"]


def test_an_unknown_mapping_is_not_acceptable(gateway: Process) -> None:
    answer = convert(gateway, pdfs.pdf(), "csv")

    assert (answer.status_code, answer.json()["detail"]) == (406, "Unsupported mapping.")


def test_a_stream_that_unpacks_to_more_than_the_memory_is_refused_and_the_gateway_stays(
    gateway: Process,
) -> None:
    bomb = pdfs.bomb_pdf(450)
    assert len(bomb) < 100_000

    with ThreadPoolExecutor(4) as pool:
        bad = [pool.submit(convert, gateway, bomb) for _ in range(2)]
        good = [pool.submit(convert, gateway, pdfs.pdf("still here")) for _ in range(2)]
        statuses = [one.result().status_code for one in bad]

    # PDFium may stop unpacking by itself, or need more than it may have; either way only this file is affected.
    assert set(statuses) <= {200, 422}
    assert [one.result().status_code for one in good] == [200, 200]
    assert gateway.is_running()


def test_a_fault_is_set_by_json_alone(gateway: Process) -> None:
    answer = httpx.post(f"{gateway.url}/admin/fault", content="{}", trust_env=False)

    assert answer.status_code == 415


def children(gateway: Process) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(gateway.pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def test_a_child_that_the_system_kills_is_replaced_and_its_file_not_blamed(gateway: Process) -> None:
    # The children take turns, so that so many files meet all of them.
    turns = range(os.cpu_count() or 1)
    assert {convert(gateway, pdfs.pdf()).status_code for _ in turns} == {200}
    killed = children(gateway)
    for child in killed:
        os.kill(child, signal.SIGKILL)

    assert [convert(gateway, pdfs.pdf()).status_code for _ in turns].count(503) == len(killed)
    assert {convert(gateway, pdfs.pdf()).status_code for _ in turns} == {200}
    assert gateway.is_running()


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python"])
def test_a_child_that_cannot_start_is_the_gateways_own_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)

    async def ask() -> Answer:
        return await Converter(processes=1, seconds=20, memory=400_000_000).convert(
            order(tmp_path, "out.xml")
        )

    assert asyncio.run(ask()).status == 503


def test_a_full_disk_is_the_gateways_own_trouble(tmp_path: Path) -> None:
    assert carry_out(order(tmp_path, "/dev/full"), 1_000_000).status == 503


def order(folder: Path, target: str) -> Order:
    source = folder / "in.pdf"
    source.write_bytes(pdfs.pdf())
    return Order(str(source), str(folder / target), "text")


def test_a_conversion_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    limits = ("--seconds", "0.01")
    process = Process(("gateway", "--port", "0", *limits), Settings().environment(), tmp_path / "log")
    try:
        answer = convert(process, pdfs.long_pdf(500))
        assert (answer.status_code, "too long" in answer.json()["detail"]) == (422, True)
        # Without the switch there are no faults.
        assert httpx.post(f"{process.url}/admin/fault", json={}, trust_env=False).status_code == 404
        assert httpx.get(f"{process.url}/health", trust_env=False).json()["mappings"] == ["layout", "text"]
    finally:
        process.end()


def test_children_end_with_the_gateway(tmp_path: Path) -> None:
    process = Process(("gateway", "--port", "0"), Settings().environment(), tmp_path / "log")
    convert(process, sample_pdf())
    left = children(process)
    assert left

    process.end(signal.SIGKILL)

    until(lambda: not any(Path(f"/proc/{child}/exe").exists() for child in left))
