# SPDX-License-Identifier: Apache-2.0
"""Reading a job's values from the command line: only by name, and never without a line in the operator log."""

from __future__ import annotations

import pytest

from tests.e2e.shell import Shell


def reads(shell: Shell) -> list[tuple[str, str, str | None]]:
    done = shell.json("events", "--operations")
    return [(each["verb"], each["subject"], each["reason"]) for each in done]


def test_the_result_of_a_job_is_printed_and_who_read_it_is_logged(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("worker", "flows:orders", "--until-idle")

    printed = shell("job", "result", "1", "--reason", "the customer asked")

    assert printed.code == 0
    assert printed.json is not None
    assert reads(shell) == [("read result", "job 1", "the customer asked")]


def test_the_payload_is_shown_only_to_whoever_asks_for_it(shell: Shell) -> None:
    shell("submit", "flows:orders", "12345678")

    without, shown = shell("job", "show", "1"), shell("job", "show", "1", "--payload")
    as_json = shell.json("job", "show", "1", "--payload")

    assert "12345678" not in without.out
    assert "payload: 12345678" in shown.out
    assert as_json["payload"] == 12345678
    assert [each[:2] for each in reads(shell)] == [("read payload", "job 1")] * 2


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("item", "words"), [("0", "job 1 failed with"), ("13", "is still queued"), ("5", "there is no job 9")]
)
def test_a_job_without_a_result_gets_a_sentence_and_exit_code_one(
    shell: Shell, item: str, words: str
) -> None:
    shell("submit", "flows:orders", item)
    if item == "0":
        shell("worker", "flows:orders", "--until-idle")

    refused = shell("job", "result", "9" if item == "5" else "1")

    assert refused.code == 1
    assert words in refused.err
    assert reads(shell) == []


def test_a_cancelled_job_has_no_result(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("job", "cancel", "1", "--yes")

    assert "job 1 was cancelled" in shell("job", "result", "1").err


def test_erased_values_are_gone_for_everybody(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("worker", "flows:orders", "--until-idle")
    shell("job", "erase", "1", "--yes")

    refused = [shell("job", "result", "1"), shell("job", "show", "1", "--payload")]

    assert [each.code for each in refused] == [1, 1]
    assert all("were erased" in each.err for each in refused)
