# SPDX-License-Identifier: Apache-2.0
"""What fails: dead letters, telemetry, statistics, the failure budget, and reprocessing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from apps.forge.example.endpoint import Endpoint
from apps.forge.folder import RunFolder
from apps.forge.tests import flows
from apps.forge.tests.conftest import Forge, numbered, read_lines, telemetry_of
from redrive import connect
from redrive.testing import VirtualClock

SPEC = "apps.forge.tests.flows"


@pytest.fixture
def failed(forge: Forge, samples: Callable[..., Path], clock: VirtualClock) -> Path:
    """A run in which three samples failed in `square`, and two in `call`."""
    flows.STATE.broken = frozenset({2, 3, 5})
    flows.STATE.statuses = {16: (503,), 36: (404,), 49: (429, 200), 64: (503, 429, 200)}
    code, said = forge("run", f"{SPEC}:plain", "--input", samples(numbered(12)), "--out", "out")
    assert code == 1, said
    return Path("out")


@pytest.mark.req("FG-5.1", "FG-5.3")
def test_the_dead_letters_have_stage_error_and_time_and_are_listed_newest_first(failed: Path) -> None:
    with connect(RunFolder(failed).database) as rd:
        found = rd.letters.list(pipeline="plain").letters

    assert [each.id for each in found] == sorted((each.id for each in found), reverse=True)
    times = [each.last_failure_at for each in found]
    assert times == sorted(times, reverse=True)
    assert {(each.stage, each.code) for each in found} == {
        ("square", "SAMPLE_BROKEN"),
        ("call", "NETWORK_UNAVAILABLE"),
        ("call", "NOT_FOUND"),
    }
    assert all(each.message for each in found)


@pytest.mark.req("FG-7.1")
def test_every_retry_and_every_dead_letter_is_a_line_of_telemetry(failed: Path, clock: VirtualClock) -> None:
    found = telemetry_of(flows.plain, clock)

    retried = [(each["job"], each["stage"], each["attempt"]) for each in found if each["kind"] == "retry"]
    assert sorted(retried) == [
        (job, "call", attempt)
        for job, attempts in ((5, 2), (7, 2), (8, 1), (9, 2))
        for attempt in range(1, attempts + 1)
    ]
    assert all(
        each["code"] and each["error"] and each["next_delay"] > 0 for each in found if each["kind"] == "retry"
    )
    dead = [
        (each["job"], each["stage"], each["attempt"], each["next_delay"])
        for each in found
        if each["kind"] == "dead"
    ]
    assert sorted(dead) == [
        (3, "square", 1, None),
        (4, "square", 1, None),
        (5, "call", 3, None),
        (6, "square", 1, None),
        (7, "call", 3, None),
    ]


@pytest.mark.req("FG-4.2")
def test_retries_errors_and_stages_are_shown_as_a_table_as_data_and_as_a_picture(
    failed: Path, forge: Forge
) -> None:
    _, shown = forge("stats", failed)
    found = msgspec.json.decode(forge("stats", failed, "-o", "json")[1])

    assert {each["retries"]: each["jobs"] for each in found["retries"]} == {"0": 8, "1": 1, "2": 3, "3+": 0}
    assert {each["code"]: each["failures"] for each in found["errors"]} == {
        "NETWORK_UNAVAILABLE": 4,
        "NOT_FOUND": 3,
        "SAMPLE_BROKEN": 3,
        "RATE_LIMITED": 2,
    }
    assert found["errors"][0]["code"] == "NETWORK_UNAVAILABLE"
    assert [
        (each["stage"], each["attempts"], each["ok"], each["retry"], each["dead"]) for each in found["stages"]
    ] == [
        ("square", 12, 9, 0, 3),
        ("call", 16, 7, 7, 2),
    ]
    picture = ElementTree.fromstring((failed / "stats.svg").read_text(encoding="utf-8"))
    drawn = " ".join(picture.itertext())
    for text in ("3+", "NETWORK_UNAVAILABLE", "SAMPLE_BROKEN", "square", "call"):
        assert text in drawn
        assert text in shown


@pytest.mark.req("FG-6.1")
def test_a_run_with_a_broken_key_stops_early_and_says_why(
    forge: Forge, samples: Callable[..., Path], endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_LLM_KEY", "sk-a-key-that-was-revoked")
    path = samples(
        [{"text": "..."}, *({"text": f"Hello, where is order {number}?"} for number in range(999))]
    )

    code, said = forge("run", f"{SPEC}:impatient", "--input", path, "--out", "out")

    assert code == 1
    flat = " ".join(said.split())
    assert "the budget is 10.0%" in flat
    assert "The most frequent failure: KEY_INVALID in label" in flat
    assert "Correct FORGE_LLM_KEY" in flat
    assert "sk-a-key" not in said
    shown = msgspec.json.decode(forge("status", "out", "-o", "json")[1])
    assert shown["status"] == "aborted"
    assert shown["dead"] <= 300
    # The filtered sample does not delay the first look, after a hundred others.
    assert "100 of 100 finished jobs failed" in shown["reason"]
    assert shown["total"] == shown["dead"] + shown["cancelled"] + shown["skipped"]
    assert endpoint.answers.total() == endpoint.answers[401] <= 300
    assert len(read_lines("out/samples.jsonl")) == shown["total"]


@pytest.mark.req("FG-5.2")
def test_reprocessing_one_stage_runs_its_failed_samples_again_with_the_fixed_stage(
    failed: Path, forge: Forge
) -> None:
    flows.STATE.statuses = {}
    flows.STATE.calls.clear()

    code, said = forge("reprocess", failed, "--stage", "call")

    assert code == 1, said
    assert dict(flows.STATE.calls) == {("call", 16): 1, ("call", 36): 1}
    found = read_lines(failed / "samples.jsonl")
    assert [each["sample"] for each in found] == list(range(12))
    assert {each["sample"]: each.get("round", 1) for each in found if each["status"] == "complete"} == {
        **dict.fromkeys((0, 1, 7, 8, 9, 10, 11), 1),
        4: 2,
        6: 2,
    }
    assert [each["sample"] for each in found if each["status"] == "failed"] == [2, 3, 5]


@pytest.mark.req("FG-5.2")
def test_reprocessing_a_run_keeps_the_lineage_and_the_old_output(failed: Path, forge: Forge) -> None:
    before = read_lines(failed / "samples.jsonl")
    old = msgspec.json.decode((failed / "manifest.json").read_bytes())
    flows.STATE.statuses, flows.STATE.broken = {}, frozenset()

    code, said = forge("reprocess", failed)

    assert code == 0, said
    assert all(each["status"] == "complete" for each in read_lines(failed / "samples.jsonl"))
    assert read_lines(failed / "history/1/samples.jsonl") == before
    assert (failed / "history/1/samples.parquet").exists()
    lineage = read_lines(failed / "lineage.jsonl")
    assert [each["before"] for each in lineage] == [each for each in before if each["status"] == "failed"]
    assert lineage[0]["config_before"] == old["stages"]["square"]["config"]
    now = msgspec.json.decode((failed / "manifest.json").read_bytes())
    assert [(each["samples"], each["stage"], each["hash_before"]) for each in now["reprocessed"]] == [
        (5, None, old["hash"])
    ]
    assert (now["status"], now["counts"]["succeeded"], now["counts"]["dead"]) == ("completed", 12, 0)
    assert forge("reprocess", failed)[0] == 0
    assert not (failed / "history/2").exists()


def test_reprocessing_stops_when_the_stage_is_not_fixed(failed: Path, forge: Forge) -> None:
    code, _ = forge("reprocess", failed, "--stage", "square")

    assert code == 1
    assert [
        each["sample"] for each in read_lines(failed / "samples.jsonl") if each["status"] == "failed"
    ] == [2, 3, 4, 5, 6]
    with connect(RunFolder(failed).database) as rd:
        assert [each.status for each in rd.replays.list()] == ["stopped"]


def test_an_unknown_stage_is_refused_with_the_nearest_name(failed: Path, forge: Forge) -> None:
    code, said = forge("reprocess", failed, "--stage", "cal")

    assert code == 2
    assert "is not a stage of plain" in said
    assert "Did you mean call?" in said
    assert not (failed / "history").exists()
