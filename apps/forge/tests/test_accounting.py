# SPDX-License-Identifier: Apache-2.0
"""The account of a run, seen from the command line: every sample is there, and the status follows from it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from apps.forge import work
from apps.forge.folder import RunFolder
from apps.forge.spec import load_spec
from apps.forge.tests import flows
from apps.forge.tests.conftest import Forge, numbered, read_lines
from redrive import connect
from redrive.engine.runs import driver
from redrive.testing import VirtualClock

SPEC = "apps.forge.tests.flows"


@pytest.mark.req("FG-1.1")
def test_a_bad_sample_becomes_a_dead_letter_and_the_others_go_on(
    forge: Forge, samples: Callable[..., Path], clock: VirtualClock
) -> None:
    flows.STATE.broken = frozenset({3})
    path = samples([*numbered(20), {"n": "text"}])

    code, said = forge("run", f"{SPEC}:plain", "--input", path, "--out", "out")

    assert code == 1, said
    found = read_lines("out/samples.jsonl")
    assert [each["sample"] for each in found] == list(range(21))
    failed = {each["sample"]: (each["stage"], each["code"]) for each in found if each["status"] == "failed"}
    assert failed == {3: ("square", "SAMPLE_BROKEN"), 20: ("square", "SCHEMA_INVALID")}
    assert [each["output"] for each in found[:3]] == [{"n": 0}, {"n": 1}, {"n": 4}]


@pytest.mark.req("FG-1.2")
@pytest.mark.parametrize(
    ("spec", "good", "bad", "status", "code"),
    [
        ("lenient", 19, 1, "completed", 0),
        ("lenient", 18, 2, "partial_success", 1),
        ("lenient", 10, 10, "partial_success", 1),
        ("lenient", 9, 11, "failed", 1),
        ("lenient", 0, 0, "completed", 0),
        ("strict", 19, 1, "partial_success", 1),
        ("strict", 17, 3, "failed", 1),
    ],
)
def test_a_run_is_judged_by_its_share_of_successes(
    spec: str, good: int, bad: int, status: str, code: int, forge: Forge, samples: Callable[..., Path]
) -> None:
    flows.STATE.statuses = dict.fromkeys(range(bad), (400,))

    ended, said = forge("run", f"{SPEC}:{spec}", "--input", samples(numbered(good + bad)), "--out", "out")

    assert ended == code, said
    shown = msgspec.json.decode(forge("status", "out", "-o", "json")[1])
    assert (shown["status"], shown["total"], shown["succeeded"], shown["dead"]) == (
        status,
        good + bad,
        good,
        bad,
    )
    assert msgspec.json.decode(Path("out/manifest.json").read_bytes())["status"] == status


@pytest.mark.req("FG-1.3")
def test_at_every_moment_the_total_is_what_succeeded_failed_was_cancelled_and_is_open(
    samples: Callable[..., Path], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked by a connection of its own, as another process would."""
    monkeypatch.setattr(driver, "LOOK_SECONDS", 0.01)
    flows.STATE.statuses = dict.fromkeys(range(0, 3_000, 10), (400,))
    seen: list[tuple[int, int]] = []

    def look(_: object) -> None:
        _, report = work.report(Path("out"))
        assert report is not None
        assert report.total == report.succeeded + report.dead + report.cancelled + report.open
        seen.append((report.total, report.open))
        with connect(RunFolder(Path("out")).database) as rd:
            assert rd.reports.account(run=report.id).adds_up

    order = work.Order(out=Path("out"), input=samples(numbered(3_000)), concurrency=8, on_progress=look)
    ended = work.start(load_spec(f"{SPEC}:lenient"), order).report

    assert (ended.total, ended.succeeded, ended.dead, ended.open) == (3_000, 2_700, 300, 0)
    assert any(0 < still_open < total for total, still_open in seen)


@pytest.mark.req("FG-8.1")
def test_half_of_the_calls_are_429_and_every_sample_is_accounted_for(
    samples: Callable[..., Path], clock: VirtualClock
) -> None:
    """Two hundred seeds with a hundred samples each, side by side in one run."""
    order = work.Order(out=Path("out"), input=samples(numbered(20_000)))

    report = work.start(load_spec(f"{SPEC}:flipping"), order).report

    assert (report.total, report.open, report.succeeded + report.dead) == (20_000, 0, 20_000)
    succeeded = Counter(
        each["sample"] // 100 for each in read_lines("out/samples.jsonl") if each["status"] == "complete"
    )
    assert len(succeeded) == 200
    assert statistics.mean(succeeded.values()) == pytest.approx(87.5, abs=1)
