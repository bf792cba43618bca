# SPDX-License-Identifier: Apache-2.0
"""A run that is paused or interrupted: its results so far can be read, and it continues where it was."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from apps.forge import work
from apps.forge.policy import policy
from apps.forge.tests import flows
from apps.forge.tests.conftest import Forge, numbered, read_lines
from redrive.errors import RunError

SPEC = "apps.forge.tests.flows:lenient"


def stopped_after(count: int, stop: Callable[[], object]) -> Callable[[int], None]:
    """Return what stops a run once, when so many samples were called."""
    seen: list[int] = []

    def look(number: int) -> None:
        seen.append(number)
        if len(seen) == count:
            stop()

    return look


def test_a_paused_run_shows_its_results_and_continues_when_resumed(
    forge: Forge, samples: Callable[..., Path]
) -> None:
    flows.STATE.each = stopped_after(40, lambda: forge("pause", "out"))

    code, said = forge("run", SPEC, "--input", samples(numbered(3_000)), "--out", "out", "--concurrency", 2)

    assert code == 3, said
    assert "forge resume out" in said
    shown = msgspec.json.decode(forge("status", "out", "-o", "json")[1])
    assert shown["status"] == "paused"
    assert 0 < shown["succeeded"] < 3_000
    found = read_lines("out/samples.jsonl")
    assert [each["sample"] for each in found] == list(range(shown["results"]))
    assert [each["output"]["n"] for each in found] == list(range(shown["results"]))
    assert forge("pause", "out")[0] == 2
    assert "it has not ended" in forge("reprocess", "out")[1]

    code, said = forge("resume", "out")

    assert code == 0, said
    assert [each["output"]["n"] for each in read_lines("out/samples.jsonl")] == list(range(3_000))
    assert set(flows.STATE.calls.values()) == {1}


def test_an_interrupted_run_continues_when_resumed(forge: Forge, samples: Callable[..., Path]) -> None:
    flows.STATE.each = stopped_after(40, lambda: os.kill(os.getpid(), signal.SIGINT))

    code, said = forge("run", SPEC, "--input", samples(numbered(3_000)), "--out", "out", "--concurrency", 2)

    assert code == 3, said
    assert 0 < len(read_lines("out/samples.jsonl")) < 3_000
    assert forge("resume", "out")[0] == 0
    assert [each["sample"] for each in read_lines("out/samples.jsonl")] == list(range(3_000))
    assert set(flows.STATE.calls.values()) == {1}


def test_the_first_results_can_be_read_while_the_rest_still_runs(
    forge: Forge, samples: Callable[..., Path]
) -> None:
    """The last sample does not end before all others can be read, in order."""
    read: list[list[int]] = []

    def look(number: int) -> None:
        if number == 499 and flows.STATE.calls["call", number] == 1:
            waited_for(lambda: len(whole(Path("out/samples.jsonl"))) == 499)
            read.append([each["sample"] for each in whole(Path("out/samples.jsonl"))])

    flows.STATE.each, flows.STATE.statuses = look, {499: (503, 200)}
    code, said = forge(
        "run", "apps.forge.tests.flows:default", "--input", samples(numbered(500)), "--out", "out"
    )

    assert code == 0, said
    assert read == [list(range(499))]


def waited_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until


def whole(path: Path) -> list[dict[str, int]]:
    """Return the whole lines of a file that grows."""
    text = path.read_bytes() if path.exists() else b""
    return [msgspec.json.decode(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def test_a_changed_spec_is_recorded_when_a_run_is_resumed(
    forge: Forge, samples: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    flows.STATE.each = stopped_after(40, lambda: os.kill(os.getpid(), signal.SIGINT))
    forge("run", SPEC, "--input", samples(numbered(3_000)), "--out", "out", "--concurrency", 2)
    before = msgspec.json.decode(Path("out/manifest.json").read_bytes())

    monkeypatch.setattr(flows, "lenient", flows.made("lenient", policy(7), failure_budget=flows.lax))
    code, said = forge("resume", "out")

    assert code == 0
    assert "changed since the run was started: stage call: max_attempts: 1 -> 7" in said
    now = msgspec.json.decode(Path("out/manifest.json").read_bytes())
    assert [each["hash_before"] for each in now["changed"]] == [before["hash"]]
    assert now["started_at"] == before["started_at"]


def test_an_input_that_has_changed_is_refused_when_a_run_is_resumed(
    forge: Forge, samples: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source was not read to the end, because it was interrupted in the first batch."""
    path = samples(numbered(30_000))
    flows.STATE.each = stopped_after(40, lambda: os.kill(os.getpid(), signal.SIGINT))
    forge("run", SPEC, "--input", path, "--out", "out", "--concurrency", 2)

    samples([{"n": -1}, *numbered(30_000)])
    with pytest.raises(RunError, match="no longer yields the same item at position 0"):
        work.resume(work.Order(out=Path("out")))


def test_a_run_that_was_killed_before_all_was_written_is_completed_by_resume(
    forge: Forge, samples: Callable[..., Path]
) -> None:
    forge("run", SPEC, "--input", samples(numbered(20)), "--out", "out")
    whole_text = Path("out/samples.jsonl").read_bytes()
    calls = flows.STATE.calls.copy()
    manifest = msgspec.json.decode(Path("out/manifest.json").read_bytes())
    Path("out/manifest.json").write_bytes(
        msgspec.json.encode({**manifest, "status": "running", "ended_at": None})
    )
    Path("out/samples.jsonl").write_bytes(whole_text[:300])
    Path("out/samples.parquet").unlink()

    code, said = forge("resume", "out")

    assert code == 0, said
    assert Path("out/samples.jsonl").read_bytes() == whole_text
    assert Path("out/samples.parquet").exists()
    assert flows.STATE.calls == calls
    assert msgspec.json.decode(Path("out/manifest.json").read_bytes())["status"] == "completed"


def test_reprocessing_that_was_interrupted_is_continued_by_resume(
    forge: Forge, samples: Callable[..., Path]
) -> None:
    flows.STATE.statuses = dict.fromkeys(range(500), (400,))
    forge("run", SPEC, "--input", samples(numbered(1_000)), "--out", "out")
    before = read_lines("out/samples.jsonl")
    flows.STATE.statuses = {}
    flows.STATE.each = stopped_after(40, lambda: os.kill(os.getpid(), signal.SIGINT))

    code, said = forge("reprocess", "out", "--concurrency", 2)

    assert code == 3, said
    assert read_lines("out/samples.jsonl") == before
    assert "it has not ended" in forge("reprocess", "out")[1]
    assert forge("resume", "out")[0] == 0
    assert [each["output"]["n"] for each in read_lines("out/samples.jsonl")] == list(range(1_000))
    assert max(flows.STATE.calls.values()) == 2
