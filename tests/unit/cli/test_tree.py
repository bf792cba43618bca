# SPDX-License-Identifier: Apache-2.0
"""The lazy tree of commands: it says what the commands say, and loads only the one that is used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.main import get_command

from redrive.cli.app import app
from redrive.cli.commands import BACK, KEEP, LOOK, TREE, WORK
from redrive.cli.tree import LazyGroup, load

LOADED_MAX = 15
PROGRAM = """
import atexit, sys
atexit.register(lambda: print(*(m for m in sys.modules if m.partition(".")[0] in ("redrive", "rich")), file=sys.stderr))
sys.argv[0] = "redrive"
from redrive.cli.__main__ import main
main()
"""


def run_and_list(*arguments: str, **env: str) -> tuple[str, list[str]]:
    """Return what a command printed, and the modules of redrive, and of Rich, that it loaded."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **env},
    )
    return ran.stdout, ran.stderr.split()


@pytest.mark.parametrize("name", TREE)
def test_the_tree_says_what_the_command_says(name: str) -> None:
    command = load(name)

    assert command.name == name
    assert " ".join(command.help.split("\n\n")[0].split()) == TREE[name].help
    assert command.rich_help_panel == TREE[name].panel
    assert not command.hidden


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        (["--version"], {}, ["redrive "]),
        (["--help"], {}, list(TREE)),
        (
            [],
            {"_REDRIVE_COMPLETE": "complete_bash", "COMP_WORDS": "redrive d", "COMP_CWORD": "1"},
            ["dlq", "demo"],
        ),
    ],
    ids=["version", "help", "completion"],
)
def test_what_needs_no_command_loads_none(arguments: list[str], env: dict[str, str], said: list[str]) -> None:
    out, loaded = run_and_list(*arguments, **env)

    assert [word for word in said if word not in out] == []
    assert "redrive.cli.tree" in loaded
    assert [name for name in loaded if not name.startswith(("redrive.cli", "redrive.errors"))] == ["redrive"]
    assert len(loaded) <= LOADED_MAX


def test_the_help_of_the_root_groups_its_commands() -> None:
    out, _ = run_and_list("--help")

    assert [line for line in out.splitlines() if line.endswith(":")] == [
        "Options:",
        *(f"{panel}:" for panel in (WORK, LOOK, KEEP, BACK)),
    ]


def test_a_command_loads_its_own_module_and_not_those_of_others() -> None:
    out, loaded = run_and_list("dlq", "--help")

    assert all(name in out for name in ("list", "edit", "export", "triage"))
    assert {name for name in loaded if name.startswith("redrive.cli.commands.")} == {
        f"redrive.cli.commands.{name}" for name in ("dlq", "dlq_edit", "dlq_transfer", "dlq_triage")
    }


def test_the_options_of_a_command_are_completed() -> None:
    out, _ = run_and_list(
        _REDRIVE_COMPLETE="complete_bash", COMP_WORDS="redrive job show --pa", COMP_CWORD="3"
    )

    assert out.split() == ["--payload"]


def test_the_root_lists_every_command_once() -> None:
    root = get_command(app)

    assert isinstance(root, LazyGroup)
    assert list(root.commands) == list(TREE)
