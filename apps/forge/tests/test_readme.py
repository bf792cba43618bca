# SPDX-License-Identifier: Apache-2.0
"""The README is true: its commands are run as they stand there, and its spec can be imported."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from apps.forge.example.settings import Settings
from apps.forge.spec import load_spec
from apps.forge.tests.conftest import Forge
from redrive.cli.app import main as redrive_cli

README = Path(__file__).parents[1] / "README.md"


def commands() -> list[tuple[str, list[str]]]:
    """Return each command with the lines it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


@pytest.mark.sqlite
def test_the_commands_of_the_readme_do_what_it_says(
    forge: Forge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = commands()
    for command, lines in listed:
        words = shlex.split(command)
        if words[0] == "python":
            code, said = forge(*words[3:])
        else:
            monkeypatch.setattr(sys, "argv", words)
            with pytest.raises(SystemExit) as ended:
                redrive_cli()
            code, said = int(ended.value.code or 0), capsys.readouterr().out
        assert code == 0, f"{command}: {said}"
        assert all(line in said for line in lines), f"{command}: {said}"

    assert len(listed) == 7


def test_the_spec_of_the_readme_runs(forge: Forge, tmp_path: Path) -> None:
    (block,) = re.findall(r"```python[^\n]*\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "shout.py").write_text(block, encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"text": " hello "}\n{"text": " "}\n', encoding="utf-8")

    code, said = forge("run", "shout.py:spec", "--input", "a.jsonl", "--out", "out")

    assert code == 0, said
    assert load_spec("shout.py:spec").spec.name == "shout"
    assert '"output":{"text":"HELLO"}' in Path("out/samples.jsonl").read_text(encoding="utf-8")
    assert "skipped      1" in said


def test_the_readme_names_every_setting_and_command() -> None:
    text = README.read_text(encoding="utf-8")

    assert {name for name in Settings.__dataclass_fields__ if f"`FORGE_{name.upper()}`" not in text} == set()
    for name in ("run", "status", "stats", "pause", "resume", "reprocess", "measure", "diff"):
        assert f"`python -m apps.forge {name} " in text
