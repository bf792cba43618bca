# SPDX-License-Identifier: Apache-2.0
"""The operator log, exports with values, imports, and the history of a job from the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.shell import ANN, Shell

ORDERS = """
from pathlib import Path
from redrive import Pipeline, RetryPolicy, stage
from redrive.core.replay import ReplayRules

@stage(retry=RetryPolicy(1))
def pay(amount: int) -> float:
    return 10 / (amount or Path("fixed").exists())

rules = ReplayRules(evidence="optional", export="include")
shop = Pipeline("shop", [pay], replay=rules)
mall = Pipeline("mall", [pay], replay=rules)
"""
OTHER = ("--database-url", "other.db")


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """Two failed jobs, and so two letters of one group."""
    (shell.folder / "orders.py").write_text(ORDERS, encoding="utf-8")
    shell.write("items.jsonl", "0", "0")
    shell("submit", "orders:shop", "--file", "items.jsonl")
    shell("worker", "orders:shop", "--until-idle", "--concurrency", "1")
    return shell


def verbs(shop: Shell, *options: str) -> list[tuple[str, str]]:
    done = shop.json("events", "--operations", *options)
    return [(each["verb"], each["subject"]) for each in done]


def test_the_log_is_shown_by_job_by_letter_and_page_by_page(shop: Shell) -> None:
    shop("dlq", "note", "1", "--text", "first", "--yes")
    shop("dlq", "note", "2", "--text", "second", "--yes")
    shop("dlq", "note", "--pipeline", "shop", "--text", "both", "--yes")

    many = ("note", "filter pipeline=shop")
    assert verbs(shop, "--letter", "1") == verbs(shop, "--job", "1") == [("note", "letter 1"), many]
    assert verbs(shop, "--job", "1", "--limit", "1") == [many]
    assert verbs(shop, "--job", "1", "--before", "3") == [("note", "letter 1")]
    page = shop("events", "--operations", "--limit", "2")
    assert "earlier: --before 2" in page.err
    assert verbs(shop, "--before", "2") == [("note", "letter 1")]
    assert "earlier" not in shop("events", "--operations", "--limit", "3").err
    assert "Close to it are: 1, 2" in shop("events", "--operations", "--letter", "3").err


def test_values_that_leave_are_on_record_with_who_and_why(shop: Shell) -> None:
    (shop.folder / "there.jsonl").write_text("", encoding="utf-8")
    options = ("--with-values", "--actor", "ann", "--reason", "for the supplier")

    shop("dlq", "export", "--to", "there.jsonl", *options)
    nothing = verbs(shop)
    done = shop.json("dlq", "export", "1", "--to", "letters.jsonl", *options)

    (logged,) = shop.json("events", "--operations")
    assert nothing == []
    assert done["is_with_values"] is True
    assert (logged["verb"], logged["subject"], logged["letters"]) == ("export", "letter 1", 1)
    assert (logged["actor"], logged["reason"]) == (ANN, "for the supplier")


def test_an_import_counts_what_is_over_and_tells_wrong_lines_apart(shop: Shell) -> None:
    Path(shop.folder, "fixed").touch()
    shop("job", "retry", "1", "--yes")
    shop("worker", "orders:shop", "--until-idle")
    exported = shop("dlq", "export", "--with-values").out
    shop("migrate", *OTHER)

    whole = shop("dlq", "import", "-", "--yes", *OTHER, stdin=exported)
    wrong = shop("dlq", "import", "-", "--yes", *OTHER, stdin=f"{exported}garbage\n")
    nothing = shop("dlq", "import", "-", "--yes", *OTHER, stdin="\n")

    assert (whole.code, wrong.code, nothing.code) == (0, 1, 1)
    assert "1 not imported: resolved in the other installation" in whole.err
    assert "line 1" not in wrong.err
    assert "line 3: it is not a line of an export" in wrong.err
    assert "error: standard input is empty" in nothing.err


def test_an_imported_job_has_a_story(shop: Shell) -> None:
    exported = shop("dlq", "export", "2").out
    shop("migrate", *OTHER)
    shop("dlq", "import", "-", "--yes", "--actor", "bob", *OTHER, stdin=exported)

    told = shop("job", "explain", "1", *OTHER).out
    shown = shop("job", "show", "1", *OTHER).out
    story = shop.json("job", "show", "1", *OTHER)
    moments = [each["what"] for each in shop.json("job", "timeline", "1", *OTHER)]

    assert re.search(r"by bob \(user \S+\) from installation", told)
    assert "There: Attempt 1 of stage 'pay' ended after" in told
    assert "where it was letter 2 of job 2" in shown
    assert [each["outcome"] for each in story["origin"]["attempts"]] == ["dead"]
    assert moments == ["queued", "failed there", "imported"]


def test_a_retry_by_the_code_of_another_pipeline_is_refused(shop: Shell) -> None:
    refused = shop("job", "retry", "1", "--target", "orders:mall", "--yes")

    assert refused.code == 2
    assert "is not the one of job 1, shop" in refused.err
    assert shop.json("job", "show", "1")["status"] == "failed"


def test_the_attempts_of_a_job_are_shown_with_their_round(shop: Shell) -> None:
    shop("job", "retry", "1", "--yes")
    shop("worker", "orders:shop", "--until-idle")

    shown = shop("job", "show", "1").out
    rounds = [each["round"] for each in shop.json("job", "show", "1")["attempts"]]

    assert any({"dispatch", "round", "attempt"} <= set(line.split()) for line in shown.splitlines())
    assert rounds == [1, 2]


def test_the_log_tells_how_a_replay_began(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shop("replay", "start", "--pipeline", "shop", "--canary", "1,2", "--rate", "5/s", "--yes")

    shown = shop("events", "--operations").out

    assert "replay 1" in shown
    assert "pipeline: shop, canary: 1,2, rate: 5/s" in shown
