# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: version, help, completion, exit codes, errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from redrive.cli import app
from redrive.errors import ConfigurationError, StoreUnavailableError
from tests.e2e.shell import Shell, program


def test_the_version_is_shown() -> None:
    assert program("--version").stdout.startswith("redrive 0.")


def test_without_arguments_the_help_names_every_command(shell: Shell) -> None:
    shown = shell().out

    nouns = "submit worker run schedule job dlq replay pipeline breaker report events stats doctor backup prune migrate demo"
    assert [noun for noun in nouns.split() if noun not in shown] == []


def test_a_wrong_command_is_refused_with_exit_code_2(shell: Shell) -> None:
    ran = shell("dmeo")

    assert ran.code == 2
    assert "dmeo" in ran.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError(field="x", value=1, rule="must be 2", fix="Write [2]."), 2),
        (StoreUnavailableError(database="x must be 2", cause="[disk] full"), 1),
    ],
)
def test_an_error_of_redrive_ends_as_a_message_with_a_hint(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise error

    monkeypatch.setattr(app, "app", refuse)
    with pytest.raises(SystemExit) as ended:
        app.main()

    shown = capsys.readouterr().err
    assert ended.value.code == code
    assert shown.startswith("error: ")
    assert "x must be 2" in shown
    assert "[" in shown, "what looks like markup is shown as it is"
    assert shown.count("Write [2].") <= 1, "a hint that the message holds already is not said twice"


@pytest.fixture
def complete(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return what bash is offered after these words."""

    def offers(words: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setenv("_REDRIVE_COMPLETE", "complete_bash")
            patch.setenv("COMP_WORDS", words)
            patch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
            # Otherwise the program is called `python -m pytest` where that is what runs.
            patch.setattr(sys.modules["__main__"], "__package__", None)
            return shell().out.split()

    return offers


def test_the_shell_completes_commands_and_names_from_the_database(
    shell: Shell, complete: Callable[[str], list[str]]
) -> None:
    shell("submit", "flows:orders", "1")
    shell("breaker", "isolate", "model", "--new", "--yes")

    assert complete("redrive pi") == ["pipeline"]
    assert complete("redrive pipeline pause ") == ["orders"]
    assert complete("redrive breaker close mo") == ["model"]
    assert complete("redrive job list --status comp") == ["complete"]


def test_completion_without_a_database_offers_nothing_and_makes_none(
    shell: Shell, complete: Callable[[str], list[str]]
) -> None:
    assert complete("redrive pipeline pause ") == []
    assert not (shell.folder / "redrive.db").exists()


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "command",
    [
        ["stats"],
        ["job", "list"],
        ["job", "show", "1"],
        ["run", "list"],
        ["pipeline", "list"],
        ["breaker", "list"],
        ["events"],
        ["schedule", "list"],
        ["prune", "--complete", "1d"],
        ["backup", "copy.db"],
    ],
)
def test_a_command_that_only_looks_makes_no_database(shell: Shell, command: list[str]) -> None:
    ended = shell(*command)

    assert ended.code == 2
    assert "is no database" in ended.err
    assert [path.name for path in shell.folder.glob("*.db*")] == []


NOT_THERE = """
job show 99, job result 99, job explain 99, job timeline 99, job cancel 99 --yes, job retry 99 --yes, job erase 99 --yes,
job list --pipeline nope, job list --stage nope, job list --run 99, dlq show 99, dlq edits 99, dlq edit 99 --yes,
dlq triage 99 --diagnosis data --yes, dlq discard 99 --yes, dlq note 99 --text x --yes, dlq list --pipeline nope,
dlq list --stage nope, dlq list --group ffff, dlq list --run 99, dlq groups --pipeline nope, dlq export --pipeline nope,
dlq validate --pipeline nope, replay status 99, replay pause 99, replay cancel 99 --yes, replay close 99 --note x,
replay start --pipeline nope --yes, run show 99, run resume 99, run pause 99, run cancel 99 --yes, run results 99,
pipeline pause nope, pipeline resume nope, breaker close nope, breaker open nope --yes, limit pause nope --yes,
schedule drop nope, events --job 99, events --pipeline nope, events --operations --letter 99, report errors --pipeline nope,
report account --run 99
"""


def test_what_is_named_but_does_not_exist_ends_with_exit_code_1(shell: Shell) -> None:
    shell("submit", "flows:orders", "0")
    shell("worker", "flows:orders", "--until-idle")
    commands = [command.strip() for command in NOT_THERE.split(",")]

    ended = {command: shell(*command.split()) for command in commands}

    assert {command: each.code for command, each in ended.items()} == dict.fromkeys(commands, 1)
    assert [command for command, each in ended.items() if not each.err.startswith("error: ")] == []


@pytest.mark.parametrize("module", ["redrive.cli.app", "redrive.cli.commands.events"])
def test_an_interrupt_while_a_command_is_imported_is_no_stack_trace(module: str) -> None:
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from redrive.cli.__main__ import main\n"
        "main()\n"
    )

    ended = subprocess.run([sys.executable, "-c", code, "stats"], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (130, "")
