# SPDX-License-Identifier: Apache-2.0
"""Where the jobs live, by a file of the present folder: what is read, what goes before what, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import connect
from redrive.config import database_url
from redrive.errors import ConfigurationError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_DATABASE_URL", raising=False)
    return tmp_path


def test_without_a_file_nothing_is_said(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.ruff]\nline-length = 100\n[project]\nname = "x"\n')

    assert database_url() is None


def test_a_file_of_its_own_goes_before_that_of_the_project_and_the_environment_before_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pyproject.toml").write_text('[tool.redrive]\ndatabase_url = "project.db"\n')
    assert database_url() == "project.db"
    (folder / "redrive.toml").write_text('database_url = "own.db"\n')
    assert database_url() == "own.db"
    monkeypatch.setenv("REDRIVE_DATABASE_URL", "env.db")
    assert database_url() == "env.db"


def test_a_connection_without_an_address_is_to_what_the_file_says(folder: Path) -> None:
    (folder / "redrive.toml").write_text('database_url = "own.db"\n')

    with connect() as rd:
        assert rd.jobs.counts() == {}

    assert (folder / "own.db").exists()
    assert not (folder / "redrive.db").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('database-url = "postgresql://u:hunter22@h/x"', "Did you mean database_url"),
        ("colour = 1", "Known settings: database_url"),
        ("database_url = 5", "database_url in redrive.toml must be a path or URL, got 5"),
        ('database_url = ["postgresql://u:hunter22@h/x"]', "must be a path or URL, got .*postgresql"),
        ('database_url = " "', "must be a path or URL"),
        ("database_url = ", "cannot be read"),
    ],
)
def test_what_nobody_understands_is_refused_and_not_repeated(folder: Path, text: str, told: str) -> None:
    (folder / "redrive.toml").write_text(text)

    with pytest.raises(ConfigurationError, match=told) as refused:
        database_url()

    assert "hunter22" not in str(refused.value)


def test_a_file_that_is_no_text_is_refused(folder: Path) -> None:
    (folder / "pyproject.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigurationError, match="cannot be read"):
        database_url()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool]\nredrive = 5\n", r"must be a table, got 5\. Write \[tool\.redrive\] .*database_url = "),
        ('[tool]\nredrive = "postgresql://u:hunter22@h/x"\n', "must be a table, got 'postgresql:"),
        (
            '[[tool.redrive]]\ndatabase_url = "jobs.db"\n',
            r"must be a table, got \[\{'database_url': 'jobs.db'",
        ),
        ("[tool.redrive]\ncolour = 1\n", "has an unknown setting, got 'colour'"),
        ("[tool.redrive]\ndatabase_url = true\n", "must be a path or URL, got True"),
    ],
)
def test_what_the_file_of_the_project_says_wrongly_is_refused_naming_it(
    folder: Path, text: str, told: str
) -> None:
    (folder / "pyproject.toml").write_text(text)

    with pytest.raises(ConfigurationError, match=told) as refused:
        database_url()

    assert r"[tool.redrive] of pyproject.toml" in str(refused.value)
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_a_file_of_its_own_that_says_nothing_leaves_it_to_that_of_the_project(
    folder: Path, text: str
) -> None:
    (folder / "redrive.toml").write_text(text)
    (folder / "pyproject.toml").write_text('[tool.redrive]\ndatabase_url = "project.db"\n')

    assert database_url() == "project.db"


def test_a_blank_address_in_the_environment_is_refused_and_an_empty_one_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDRIVE_DATABASE_URL", "")
    assert database_url() is None
    monkeypatch.setenv("REDRIVE_DATABASE_URL", " ")

    with pytest.raises(ConfigurationError, match="REDRIVE_DATABASE_URL must be a path or URL, got ' '"):
        database_url()
