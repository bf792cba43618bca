# SPDX-License-Identifier: Apache-2.0
"""The `redrive` command as a user runs it: as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from redrive.cli import app
from redrive.errors import ConfigurationError


def redrive(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from redrive.cli.app import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )


def test_the_demo_shows_what_is_classified_how_retried_held_and_given_up() -> None:
    ran = redrive("demo", "--instant")

    assert ran.returncode == 0
    assert ran.stderr == ""
    assert "9 calls = 3 succeeded + 5 given up + 1 refused" in ran.stdout
    for shown in (
        "NETWORK_UNAVAILABLE (network)",
        "again in 2 s (as the dependency told us)",
        "QUOTA_EXHAUSTED is not retried",
        "AUTH_INVALID (auth)",
        "BUG_CODE is not retried (a bug by its type)",
        "while breaker 'service' is open: held, no attempt burned",
        "breaker 'dead host' refused the call",
    ):
        assert shown in ran.stdout
    assert "0123456789abcdef" not in ran.stdout
    assert "api_key=<redacted" in ran.stdout


def test_the_version_is_shown() -> None:
    assert redrive("--version").stdout.startswith("redrive 0.")


def test_without_arguments_the_help_is_shown() -> None:
    assert "demo" in redrive().stdout


def test_a_wrong_command_is_refused_with_exit_code_2() -> None:
    ran = redrive("dmeo")

    assert ran.returncode == 2
    assert "dmeo" in ran.stderr


def test_an_error_of_redrive_ends_as_a_message_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise ConfigurationError(field="x", value=1, rule="must be 2", fix="Write 2.")

    monkeypatch.setattr(app, "app", refuse)
    with pytest.raises(SystemExit) as ended:
        app.main()

    assert ended.value.code == 2
    assert "x must be 2" in capsys.readouterr().err
