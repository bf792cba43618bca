# SPDX-License-Identifier: Apache-2.0
"""What the tests share: the command in this process, the local model, and samples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from apps.forge import cli, work
from apps.forge.example.endpoint import KEY, Endpoint
from apps.forge.folder import RunFolder
from apps.forge.spec import Forge as Spec
from apps.forge.tests import flows
from redrive import connect
from redrive.testing import VirtualClock
from tools import pytest_requirements

# Typer builds every command anew for each call, which takes most of what a test of one command would cost.
typer.main.get_command = cache(typer.main.get_command)

Forge = Callable[..., tuple[int, str]]
"""Runs the command with these words; returns its exit code, and what it printed."""


def pytest_configure(config: pytest.Config) -> None:
    """Add the requirement marks."""
    pytest_requirements.register(config)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this machine reaches a test, and no test leaves anything for the next."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flows, "STATE", flows.State())


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Generator[Endpoint]:
    """The local model, without a limit that bites; the settings point at it."""
    with Endpoint(rate=100_000, burst=10_000).running() as server:
        monkeypatch.setenv("FORGE_LLM_URL", server.url)
        monkeypatch.setenv("FORGE_LLM_KEY", KEY)
        monkeypatch.setenv("FORGE_LLM_MODEL", "forge-local")
        yield server


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Forge:
    def run(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["forge", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return run


@pytest.fixture
def samples(tmp_path: Path) -> Callable[[Iterable[object]], Path]:
    """Writes samples to a file."""

    def write(given: Iterable[object]) -> Path:
        path = tmp_path / "samples.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in given))
        return path

    return write


def numbered(count: int) -> list[dict[str, int]]:
    """Return samples for the specs in `flows`."""
    return [{"n": number} for number in range(count)]


def read_lines(path: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a file of JSON lines."""
    return [msgspec.json.decode(line) for line in Path(path).read_bytes().splitlines()]


def telemetry_of(spec: Spec, clock: VirtualClock) -> list[dict[str, Any]]:
    """Return the telemetry of the run in `out`, each event once.

    Events are delivered at least once, and on a busy machine some of them only by the next worker.
    """
    folder = RunFolder(Path("out"))
    clock.advance(3_600)
    with connect(folder.database) as rd, work.telemetry(folder) as on_event:
        rd.work([spec.pipeline(folder.artifacts, on_event)], until_idle=True)
    lines = read_lines(folder.telemetry)
    return list(
        {(each["job"], each["stage"], each["round"], each["attempt"]): each for each in lines}.values()
    )
