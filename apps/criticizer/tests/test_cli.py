# SPDX-License-Identifier: Apache-2.0
"""The commands, as somebody types them; those of the README are run by its own test."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from apps.criticizer import cli
from apps.criticizer.tests.scenes import PATCH, git
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
    with connect() as rd:
        assert rd.jobs.counts() == {"complete": 1}


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


@pytest.mark.parametrize(
    ("recipient", "problem"),
    [
        ("pigeon", "must be terminal, webhook, webhook:URL or smtp:ADDRESS"),
        ("termina", "did you mean terminal?"),
        ("smtp:", "must be followed by a mail address"),
        ("webhook:nonsense", "must be followed by an http or https address"),
        ("webhook", "needs CRITICIZER_WEBHOOK_URL"),
    ],
)
def test_a_recipient_that_cannot_be_one_is_wrong_usage_and_submits_nothing(
    here: Path, repo: Path, recipient: str, problem: str
) -> None:
    code, said = typed("review", "--repo", str(repo), "--notify", "terminal", "--notify", recipient)

    assert code == 2
    assert problem in " ".join(said.replace("│", "").split())
    assert not (here / "redrive.db").exists()


def test_an_unknown_log_level_is_wrong_usage() -> None:
    code, said = typed("watch", "--log-level", "loud")

    assert code == 2
    assert "'loud' is not one of" in said
    assert typed("watch", "--until-idle", "--log-level", "INFO")[0] == 0


def test_a_misspelt_variable_is_wrong_usage(
    repo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRITICIZER_LLM_KEYS", "sk-one-0123456789")
    for words in (["review", "--repo", str(repo), "--queue"], ["watch", "--until-idle"]):
        monkeypatch.setattr("sys.argv", ["criticizer", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()

        said = capsys.readouterr().err
        assert (ended.value.code, "Traceback" in said, "sk-one" in said) == (2, False, False)
        assert "Did you mean CRITICIZER_LLM_KEY?" in said


def test_the_same_order_twice_is_one_review_until_the_change_is_another_one(here: Path, repo: Path) -> None:
    words = ("review", "--repo", str(repo))
    first, second = typed(*words), typed(*words)
    again = typed(*words, "--again")
    elsewhere = typed(*words, "--notify", "terminal", "--queue")
    (repo / "prices.py").write_text("import sys\n", encoding="utf-8")
    git(repo, "commit", "--quiet", "--all", "--message", "more")
    changed = typed(*words)

    assert "2 findings" in first[1]
    assert second == (0, "job 1 has reviewed this already: use --again to review it once more\n")
    assert "2 findings" in again[1]
    assert elsewhere == second
    assert "1 finding" in changed[1]
    with connect() as rd:
        assert rd.jobs.counts() == {"complete": 3}


def test_an_order_that_is_queued_twice_is_one_job(here: Path, repo: Path) -> None:
    words = ("review", "--repo", str(repo), "--queue")

    assert typed(*words) == typed(*words) == (0, "job 1 is queued: run criticizer watch to work on it\n")
