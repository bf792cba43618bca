# SPDX-License-Identifier: Apache-2.0
"""Wrong input is refused before anything is stored, with the place and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from apps.forge.artifacts import Artifacts
from apps.forge.folder import RunFolder
from apps.forge.spec import load_spec
from apps.forge.tests.conftest import Forge, numbered, read_lines
from redrive import ConfigurationError, RedriveError
from redrive.testing import VirtualClock

SPEC = "apps.forge.tests.flows:plain"

GOOD = b'{"n": 1}\n'


def test_a_broken_line_is_named_and_nothing_is_started(forge: Forge, tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_bytes(GOOD + b"\n" + b'{"n": 2\n' + GOOD)

    code, said = forge("run", SPEC, "--input", path, "--out", "out")

    assert code == 2
    assert "samples.jsonl, line 3: it is not JSON" in said
    assert "--bad-lines skip" in said
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("name", "content", "line", "problem"),
    [
        ("a.jsonl", GOOD + b"[1]\n", 2, "it is not a JSON object"),
        ("a.jsonl", b'{"n": "\xff"}\n' + GOOD, 1, "it is not JSON"),
        ("a.csv", b"n,id\n1,a\n2\n3,c\n", 3, "it has 1 fields, and the first line has 2"),
        ("a.csv", b'n\n1\n"2"x\n3\n', 3, "it is not CSV"),
    ],
)
def test_the_rest_goes_on_by_choice_and_what_was_left_out_is_counted(
    name: str, content: bytes, line: int, problem: str, forge: Forge, tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    refused, said = forge("run", SPEC, "--input", path, "--out", "out")
    code, _ = forge("run", SPEC, "--input", path, "--out", "out", "--bad-lines", "skip")

    assert refused == 2
    assert f"{name}, line {line}: {problem}" in said
    assert code == 0
    manifest = msgspec.json.decode(Path("out/manifest.json").read_bytes())
    assert manifest["input"]["broken"] == 1
    assert manifest["source"]["broken_lines"][0][0] == line
    assert msgspec.json.decode(forge("status", "out", "-o", "json")[1])["broken_lines"] == 1
    assert (
        len(read_lines("out/samples.jsonl"))
        == manifest["input"]["samples"]
        == content.count(b"\n") - 1 - (name == "a.csv")
    )


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("none.jsonl", "cannot be read"),
        ("a.txt", "must be a .jsonl, .csv or .parquet file"),
        ("broken.parquet", "is not a Parquet file that can be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(name: str, rule: str, forge: Forge, tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and then nothing")

    code, said = forge("run", SPEC, "--input", name, "--out", "out")

    assert code == 2
    assert rule in said
    assert not Path("out").exists()


def test_a_folder_with_another_runs_manifest_is_refused(
    forge: Forge, samples: Callable[..., Path], clock: VirtualClock
) -> None:
    assert forge("run", SPEC, "--out", "out")[0] == 0
    before = Path("out/manifest.json").read_bytes()

    code, said = forge("run", SPEC, "--input", samples(numbered(2)), "--out", "out")

    assert code == 2
    assert "has the manifest of another run (plain" in said
    assert "forge resume out" in said
    assert Path("out/manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import missing_library\n",
            "spec.py, line 1: ModuleNotFoundError: No module named 'missing_library'",
        ),
        ("x = (\n", "spec.py, line 1: SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit"),
        (
            "from apps.forge.policy import policy\np = policy(0)\n",
            "spec.py, line 2: RetryPolicy.max_attempts",
        ),
        ("password = 'token=abcdef0123456789'\nraise ValueError(password)\n", "spec.py, line 2: ValueError"),
    ],
)
def test_a_spec_that_does_not_import_is_named_by_file_and_line(
    text: str, message: str, forge: Forge, tmp_path: Path
) -> None:
    (tmp_path / "spec.py").write_text(text, encoding="utf-8")

    code, said = forge("run", "spec.py:spec", "--out", "out")

    assert code == 2
    assert "cannot be imported" in said
    assert message in said
    assert "abcdef0123456789" not in said
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("plain", "must name a module or a file, and a spec in it"),
        ("apps.forge.tests.flows:plane", "Did you mean plain?"),
        ("apps.forge.tests.flows:nowhere", "Its specs: plain"),
        ("apps.forge.nowhere:spec", "No module named 'apps.forge.nowhere'"),
        ("nowhere.py:spec", "there is no file nowhere.py"),
    ],
)
def test_a_spec_that_is_not_there_is_refused(target: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match="SPEC") as refused:
        load_spec(target)

    assert message in str(refused.value)


def test_a_spec_without_a_source_needs_an_input(forge: Forge) -> None:
    code, said = forge("run", "apps.forge.tests.flows:lenient", "--out", "out")

    assert code == 2
    assert "--input is needed: the spec has no source of its own" in said


@pytest.mark.parametrize("command", ["status", "stats", "resume", "reprocess", "measure"])
def test_a_folder_without_a_run_is_refused(command: str, forge: Forge, tmp_path: Path) -> None:
    code, said = forge(command, tmp_path)

    assert code == 2
    assert "is not the folder of a run" in said


def test_a_run_that_has_ended_is_not_resumed(forge: Forge, clock: VirtualClock) -> None:
    forge("run", SPEC, "--out", "out")
    before = Path("out/manifest.json").read_bytes()

    code, said = forge("resume", "out")

    assert code == 2
    assert "it has ended as completed" in said
    assert "forge reprocess out" in said
    assert Path("out/manifest.json").read_bytes() == before


@pytest.mark.parametrize("command", ["stats", "reprocess", "pause"])
def test_a_run_that_was_killed_before_its_start_has_nothing_to_show(
    command: str, forge: Forge, clock: VirtualClock
) -> None:
    forge("run", SPEC, "--out", "out")
    for path in Path("out").glob("jobs.db*"):
        path.unlink()
    RunFolder(Path("out")).choose_database()
    assert msgspec.json.decode(forge("status", "out", "-o", "json")[1])["status"] == "not started"

    code, said = forge(command, "out")

    assert code == 2
    assert "it has not started" in said


def test_a_run_whose_jobs_are_on_a_server_is_not_looked_for_elsewhere(
    forge: Forge, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge("run", SPEC, "--out", "out")
    Path("out/schema").write_text("forge_1", encoding="utf-8")
    monkeypatch.setenv("REDRIVE_DATABASE_URL", "jobs.db")

    code, said = forge("status", "out")

    assert code == 2
    assert "REDRIVE_DATABASE_URL" in said
    assert "must name the PostgreSQL server that has the jobs of out" in said


def test_a_batch_with_too_few_results_fails_its_samples_and_says_so(
    forge: Forge, tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "spec.py").write_text(
        """
from apps.forge.policy import policy, stage
from apps.forge.spec import Forge
from redrive import Batch, FailureBudget

@stage(retry=policy(1), batch=Batch(size=4))
def embed(samples: list[int]) -> list[int]:
    return samples[1:]

spec = Forge(name="short", stages=[embed], source=lambda: range(4), failure_budget=FailureBudget(max_rate=1.0))
""",
        encoding="utf-8",
    )

    code, said = forge("run", "spec.py:spec", "--out", "out")

    assert code == 1, said
    found = read_lines("out/samples.jsonl")
    assert [each["status"] for each in found] == ["failed"] * 4
    assert all("3" in each["reason"] and "4" in each["reason"] for each in found)


def test_a_limit_that_is_defined_twice_with_other_numbers_is_refused(forge: Forge, tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text(
        """
from apps.forge.policy import stage
from apps.forge.spec import Forge
from redrive import Limit

@stage(limits=Limit("model", rate=5))
def one(sample: int) -> int:
    return sample

@stage(limits=Limit("model", rate=6))
def two(sample: int) -> int:
    return sample

spec = Forge(name="twice", stages=[one, two])
""",
        encoding="utf-8",
    )

    code, said = forge("run", "spec.py:spec", "--out", "out")

    assert code == 2
    assert "Limit(model)" in said
    assert not Path("out").exists()


@pytest.mark.parametrize("digest", ["aa{}", "../../x", "", "A" * 64])
def test_an_artefact_is_read_by_its_digest_and_never_by_a_path(tmp_path: Path, digest: str) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x")

    with pytest.raises(RedriveError, match="not the digest of an artefact"):
        Artifacts(tmp_path / "artifacts").read(digest.format(other))
