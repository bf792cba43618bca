# SPDX-License-Identifier: Apache-2.0
"""Modules that cannot be imported: the message names the user's file and line, hides secrets, and ends with exit code 2."""

from __future__ import annotations

import pytest

from redrive.cli.input.targets import import_pipeline
from redrive.errors import ConfigurationError
from tests.e2e.shell import Shell

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
TWICE = """
from redrive import Pipeline, stage

@stage
def halve(number: int) -> float:
    return number / 2

orders = Pipeline("orders", [halve, halve])
"""
COMMANDS = pytest.mark.parametrize("command", [["submit", "broken:orders", "1"], ["worker", "broken:orders"]])


@COMMANDS
@pytest.mark.parametrize(
    "code", [f"raise RuntimeError('no access with {KEY}')", f"import sys; sys.exit('no access with {KEY}')"]
)
def test_a_secret_in_what_a_module_raises_is_not_shown(shell: Shell, command: list[str], code: str) -> None:
    shell.write("broken.py", code)

    ended = shell(*command)
    with pytest.raises(ConfigurationError) as refused:
        import_pipeline("broken:orders")

    assert ended.code == 2
    assert "no access with" in ended.err
    assert KEY not in ended.err + ended.out
    assert KEY not in str(refused.value) + refused.value.hint


@COMMANDS
def test_what_redrive_refuses_is_wrong_in_the_users_file(shell: Shell, command: list[str]) -> None:
    shell.write("broken.py", TWICE)

    ended = shell(*command)

    assert ended.code == 2
    assert f"{shell.folder}/broken.py, line 8: ConfigurationError: Pipeline(orders).stages" in ended.err
    assert "engine/pipeline.py" not in ended.err
    assert ended.err.endswith("@stage(name=...).\n")


@COMMANDS
def test_a_module_that_ends_the_program_is_named(shell: Shell, command: list[str]) -> None:
    shell.write("broken.py", "import sys", "sys.exit(4)")

    ended = shell(*command)

    assert ended.code == 2
    assert (
        f"{shell.folder}/broken.py, line 2: The module called sys.exit(4) while it was imported" in ended.err
    )
    assert "sys.exit(4)" in ended.err
