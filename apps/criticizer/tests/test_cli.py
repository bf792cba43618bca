# SPDX-License-Identifier: Apache-2.0
"""The commands, as somebody types them; those of the README are run by its own test."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from apps.criticizer import cli
from apps.criticizer.tests.scenes import PATCH
from apps.criticizer.tests.servers import Upstream
from redrive import connect

BAD_LINES = ["prices.py:1: error [bug]", "prices.py:4: warning [bug]", "prices.py:6: warning [security]"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, words)
    return done.exit_code, done.output


def test_the_demo_needs_nothing_and_leaves_nothing_behind(here: Path) -> None:
    code, said = typed("demo")

    assert code == 0
    assert all(line in said for line in BAD_LINES)
    assert list(here.iterdir()) == []


def test_what_is_queued_is_done_by_a_watch(here: Path, repo: Path) -> None:
    queued = typed("review", "--repo", str(repo), "--queue")
    watched = typed("watch", "--until-idle")

    assert queued == (0, "job 1 is queued: run criticizer watch to work on it\n")
    assert watched[0] == 0
    assert "2 findings (local)" in watched[1]
    with connect(here / "redrive.db") as rd:
        assert rd.counts() == {"complete": 1}


def test_a_patch_is_reviewed_by_its_address(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream.patch = (
        PATCH.replace("--- a/prices.py", "--- /dev/null")
        .replace("-1,2", "-0,0")
        .replace("-    return sum(prices)\n", "")
    )
    upstream.patch = upstream.patch.replace(" def", "+def")
    refused = typed("submit-url", f"{upstream.url}/change.patch")
    monkeypatch.setenv("CRITICIZER_HOSTS", upstream.address)
    code, said = typed("submit-url", f"{upstream.url}/change.patch")

    assert refused[0] == 1
    assert "SOURCE_DENIED" in refused[1]
    assert "redrive job show 1" in refused[1]
    assert code == 0
    assert "prices.py:3: warning [security]" in said


def test_a_database_that_cannot_be_opened_ends_with_a_message(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "folder.db").mkdir()
    monkeypatch.setattr("sys.argv", ["criticizer", "watch", "--database-url", "folder.db"])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")
