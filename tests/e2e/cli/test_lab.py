# SPDX-License-Identifier: Apache-2.0
"""The laboratory from the command line: a storm as table, JSON, picture and page, and a policy against the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.shell import Shell

SMALL = ("lab", "storm", "--clients", "200", "--rate", "20/s", "--burst", "20", "--seeds", "2")
PAGE = "before\n<!-- redrive lab storm -->\nold\n<!-- end of redrive lab storm -->\nafter\n"


def test_a_storm_compares_strategies(shell: Shell) -> None:
    rows = shell.json(*SMALL, "--strategy", "limit")
    table = shell(*SMALL, "--strategy", "limit")
    picture = shell(*SMALL, "-o", "svg")

    assert [row["strategy"] for row in rows] == ["fixed", "limit"]
    assert rows[0]["refused"] > 0 == rows[1]["refused"]
    assert "100.0%" in table.out
    assert picture.out.startswith("<svg")


@pytest.mark.untraced
def test_a_storm_is_written_into_a_page_the_same_each_time(shell: Shell, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")

    first = shell(*SMALL, "--overloads", "--strategy", "adaptive", "--into", str(page))
    text = page.read_text(encoding="utf-8")
    shell(*SMALL, "--overloads", "--strategy", "adaptive", "--into", str(page))

    assert first.code == 0
    assert text.startswith("before\n<!-- redrive lab storm -->\nMedians over the seeds 1 to 2")
    assert text.endswith("<!-- end of redrive lab storm -->\nafter\n")
    assert page.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "wrong",
    [("--strategy", "wild"), ("--rate", "fast"), ("--seeds", "0"), ("--base", "0"), ("--into", "no.md")],
)
def test_wrong_options_of_a_storm_are_refused(shell: Shell, wrong: tuple[str, str]) -> None:
    answer = shell(*SMALL, *wrong)

    assert answer.code != 0
    assert wrong[0].strip("-") in answer.err


def test_another_policy_is_applied_to_the_record(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("worker", "flows:orders", "--until-idle")
    report = shell.json("lab", "replay-history", "--max-attempts", "1", "--backoff", "fixed")
    table = shell("lab", "replay-history", "--backoff", "linear", "--pipeline", "orders")
    empty = shell("lab", "replay-history", "--stage", "other")
    unknown = shell("lab", "replay-history", "--pipeline", "ordres")

    assert (report["stages"], report["would_succeed"], report["unknown"]) == (2, 2, 0)
    assert "as recorded" in table.out
    assert "never happened" in table.err
    assert "no attempts" in empty.err + empty.out
    assert unknown.code == 1
