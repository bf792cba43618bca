# SPDX-License-Identifier: Apache-2.0
"""The manifest: what a run was made of, a hash of it, and how two runs differ."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apps.forge.manifest import code_facts, hash_of
from apps.forge.policy import policy, stage
from apps.forge.tests import flows
from apps.forge.tests.conftest import Forge, numbered
from redrive.testing import VirtualClock

SPEC = "apps.forge.tests.flows:plain"


def manifest(folder: str) -> dict[str, Any]:
    found = msgspec.json.decode(Path(folder, "manifest.json").read_bytes())
    assert isinstance(found, dict)
    return found


def test_the_manifest_has_what_a_run_needs_to_be_reproduced(forge: Forge, clock: VirtualClock) -> None:
    forge("run", SPEC, "--out", "out")

    found = manifest("out")
    assert list(found["stages"]) == ["call", "square"]
    assert found["stages"]["call"]["config"] == flows.plain.stages[1].config
    assert (found["stages"]["square"]["max_attempts"], found["stages"]["call"]["max_attempts"]) == (1, 3)
    assert found["stages"]["call"]["retriable_errors"] == "all"
    assert found["counts"] == {"total": 5, "succeeded": 5, "dead": 0, "cancelled": 0, "skipped": 0, "open": 0}
    assert set(found["libraries"]) == {"python", "redrive", "msgspec", "pyarrow"}
    assert all(found["libraries"].values())
    assert len(found["code"]["source"]) == 64
    assert found["code"]["git_commit"] is not None
    assert found["secrets"] == ["MODEL_KEY"]
    assert found["settings"]["model"] == "small"
    assert "sk-not-for-the-manifest" not in Path("out/manifest.json").read_text(encoding="utf-8")
    assert found["status"] == "completed"


def test_the_hash_depends_on_neither_time_nor_place_nor_the_order_of_keys(
    forge: Forge, samples: Callable[..., Path], clock: VirtualClock
) -> None:
    path = samples(numbered(3))
    forge("run", SPEC, "--input", path, "--out", "one")
    moved = path.rename(path.with_name("moved.jsonl"))
    clock.advance(86_400)
    forge("run", SPEC, "--input", moved, "--out", "two")

    one, two = manifest("one"), manifest("two")
    assert one["hash"] == two["hash"] == hash_of(one)
    keys = list(one)
    random.Random(1).shuffle(keys)
    assert hash_of({key: one[key] for key in keys} | {"started_at": "never", "counts": {}}) == one["hash"]
    assert forge("diff", "one", "two") == (
        0,
        "no differences: the same input, stages, measurements, settings, code and libraries\n",
    )


def test_diff_shows_which_stage_and_which_setting_changed(
    forge: Forge, samples: Callable[..., Path], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge("run", SPEC, "--out", "one")
    changed = stage(name="call", retry=policy(5))(flows.call)
    newer = replace(
        flows.plain,
        stages=[flows.square, changed],
        measurements=[flows.size],
        settings=lambda: {"model": "large"},
        secrets=["MODEL_KEY", "OTHER_KEY"],
        libraries=["numpy"],
    )
    monkeypatch.setattr(flows, "plain", newer)
    forge("run", SPEC, "--input", samples(numbered(3)), "--out", "two")

    code, said = forge("diff", "one", "two/manifest.json")

    assert code == 1
    lines = said.splitlines()
    for expected in (
        "stage call: max_attempts: 3 -> 5",
        "settings model: small -> large",
        "measurement twice: there -> none",
        'secrets: ["MODEL_KEY"] -> ["MODEL_KEY","OTHER_KEY"]',
        "input generator: numbers -> none",
        "input samples: none -> 3",
    ):
        assert expected in lines
    assert any(line.startswith("stage call: config: ") for line in lines)
    assert any(line.startswith("library numpy: none -> ") for line in lines)
    assert not any(line.startswith("stage square") for line in lines)


def test_the_commit_and_whether_the_tree_was_changed_are_known(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=Forge", "-c", "user.email=forge@localhost")
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    spec = tmp_path / "spec.py"
    spec.write_text("one = 1\n", encoding="utf-8")
    nowhere = code_facts(spec)
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    clean = code_facts(spec)
    spec.write_text("one = 2\n", encoding="utf-8")
    dirty = code_facts(spec)

    assert (nowhere["git_commit"], nowhere["git_dirty"]) == (None, None)
    assert clean["git_commit"] == dirty["git_commit"] == git("rev-parse", "HEAD").strip()
    assert (clean["git_dirty"], dirty["git_dirty"]) == (False, True)
    assert clean["source"] != dirty["source"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no manifest that can be read"),
        (b"{", "is not JSON"),
        (b'{"format": 7}', "is not a Forge manifest of format 1"),
        (b"[]", "is not a Forge manifest of format 1"),
    ],
)
def test_what_is_no_manifest_is_refused(
    content: bytes | None, message: str, forge: Forge, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "other.json").write_bytes(content)

    code, said = forge("diff", "other.json", "other.json")

    assert code == 2
    assert message in said
