# SPDX-License-Identifier: Apache-2.0
"""Dead letters, explanations and reports from the command line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from redrive import connect
from redrive.cli.input.letters import complete_codes, complete_groups, complete_stages
from tests.e2e.shell import Shell
from tests.embedded import change_rows, changing


@pytest.fixture
def failed(shell: Shell) -> Shell:
    """Six jobs: one is complete, three were divided by zero, one was reset, one has a pipeline of its own."""
    shell.write("items.jsonl", 5, 0, 13, 0, 0)
    shell("submit", "flows:orders", "--file", "items.jsonl")
    shell("submit", "flows:sleepers", "1")
    shell("worker", "flows:orders", "flows:sleepers", "--until-idle", "--concurrency", "1")
    return shell


@pytest.mark.req("FG-5.3")
def test_the_dead_letters_of_a_pipeline_are_listed_newest_first(failed: Shell) -> None:
    listed = failed.json("dlq", "list", "--pipeline", "orders")
    shown = failed("dlq", "list", "--pipeline", "orders")

    times = [each["last_failure_at"] for each in listed["letters"]]
    assert len(times) == 4
    assert times == sorted(times, reverse=True)
    assert {each["pipeline"] for each in listed["letters"]} == {"orders"}
    assert listed["next_cursor"] is None
    assert "NETWORK_RESET" in shown.out
    assert "more:" not in shown.err


def test_a_list_of_letters_goes_on_where_the_last_page_ended(failed: Shell) -> None:
    seen: list[int] = []
    cursor: list[str] = []
    for _ in range(3):
        page = failed.json("dlq", "list", "-n", "2", *cursor)
        seen += [each["id"] for each in page["letters"]]
        cursor = ["--before", page["next_cursor"] or ""]

    assert sorted(seen) == [1, 2, 3, 4, 5]
    assert cursor == ["--before", ""]
    assert "more: --before 1" in failed("dlq", "list", "-n", "2").err


@pytest.mark.untraced
def test_letters_are_chosen_by_options(failed: Shell) -> None:
    counts = {
        ("--code", "BUG_CODE"): 4,
        ("--category", "network"): 1,
        ("--stage", "halve"): 3,
        ("--state", "open"): 5,
        ("--state", "resolved"): 0,
        ("--owner", "ann"): 0,
        ("--key", "k"): 0,
        ("--since", "2h"): 5,
        ("--until", "2h"): 0,
        ("--since", "2020-01-02T03:04", "--until", "2020-01-03"): 0,
    }

    for options, count in counts.items():
        assert len(failed.json("dlq", "list", *options)["letters"]) == count, options
        shown = failed("dlq", "list", *options)
        assert ("no dead letters match" in shown.err) is (count == 0), options


def test_groups_show_causes_instead_of_letters(failed: Shell) -> None:
    found = failed.json("dlq", "groups")
    largest = found[0]
    start = largest["fingerprint"].removeprefix("v1:")[:6]

    of_group = failed.json("dlq", "list", "--group", start)
    shown = failed("dlq", "groups", "--pipeline", "orders")
    picture = failed("dlq", "groups", "-o", "svg")

    assert sorted(each["letters"] for each in found) == [1, 1, 3]
    assert (largest["pending"], largest["code"], largest["stages"]) == (3, "BUG_CODE", ["halve"])
    assert (largest["diagnosis"], largest["trend"]["word"]) == ("code_defect", "rising")
    assert len(largest["trend"]["hours"]) == 24
    assert of_group["letters"][0]["id"] == largest["sample"]
    assert len(of_group["letters"]) == 3
    assert "division by zero" in shown.out
    assert "rising" in shown.out
    assert ET.fromstring(picture.out).tag.endswith("svg")
    assert "no dead letters match" in failed("dlq", "groups", "--code", "NOT_FOUND").err


def test_groups_that_are_not_printed_are_counted(failed: Shell) -> None:
    shown = failed("dlq", "groups", "-n", "2")

    assert "2 of 3 groups; --limit 3 shows all of them" in shown.err
    assert "groups" not in failed("dlq", "groups").err


def test_a_group_with_nothing_pending_has_ended_and_does_not_rise(failed: Shell) -> None:
    failed("dlq", "discard", "--code", "NETWORK_RESET", "--reason", "known", "--yes")

    words = {each["code"]: each["trend"]["word"] for each in failed.json("dlq", "groups", "-p", "orders")}
    of_state = failed.json("dlq", "groups", "--stage", "halve", "--state", "resolved")

    assert words == {"BUG_CODE": "rising", "NETWORK_RESET": "ended"}
    assert of_state == []


def test_a_message_that_begins_with_a_newline_is_listed_by_its_first_line(shell: Shell) -> None:
    (shell.folder / "blank.py").write_text(
        "from redrive import Pipeline, stage\n"
        "@stage\n"
        "def parse(number: int) -> int:\n"
        "    raise ValueError('\\n\\n  no such thing\\nsecond line')\n"
        "blank = Pipeline('blank', [parse])\n",
        encoding="utf-8",
    )
    shell("submit", "blank:blank", "0")
    shell("worker", "blank:blank", "--until-idle")

    assert "no such thing" in shell("dlq", "list").out
    assert "no such thing" in shell("dlq", "groups").out


@pytest.mark.untraced
@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("dlq groups", "group count stage code class age sample trend message"),
        ("dlq list", "id job stage code state age message"),
        ("job list", "id stage status attempt code age"),
        ("events", "at job pipeline stage attempt outcome code sentence"),
        ("pipeline list", "name stages queued processing workers"),
        ("report errors", "code category failures jobs share last"),
    ],
)
def test_lists_have_one_line_per_row_and_fit_the_screen(
    failed: Shell, monkeypatch: pytest.MonkeyPatch, width: int, command: str, named: str
) -> None:
    rows = failed.json(*command.split())
    monkeypatch.setenv("COLUMNS", str(width))

    lines = failed(*command.split()).out.splitlines()

    found = rows["letters"] if command == "dlq list" else rows
    kept = {"pipeline list": ["queued", "processing", "workers"]}.get(command, [])
    assert max(map(len, lines)) <= width
    assert set(named.split()) - set(kept) <= set(lines[0].split())
    assert len(lines) == 1 + len(found)


def test_jobs_are_listed_with_their_keys_if_any_has_one(failed: Shell) -> None:
    before = failed("job", "list").out.splitlines()[0]
    failed("submit", "flows:orders", "5", "--key", "order-5")
    after = failed("job", "list").out

    assert "key" not in before.split()
    assert "key" in after.splitlines()[0].split()
    assert "order-5" in after


def test_a_column_that_is_empty_everywhere_is_left_out(failed: Shell) -> None:
    before = failed("dlq", "list").out.splitlines()[0]
    failed("dlq", "assign", "1", "--to", "ann", "--yes")
    after = failed("dlq", "list").out.splitlines()[0]

    assert ("assignee" in before, "assignee" in after) == (False, True)


def test_groups_count_what_the_options_mean(failed: Shell) -> None:
    failed("submit", "flows:orders", "0", "--owner", "ann", "--key", "k1")
    failed("worker", "flows:orders", "--until-idle")
    halved = failed.json("dlq", "list", "--stage", "halve")["letters"]
    failed("dlq", "discard", str(halved[0]["id"]), "--yes")

    def counts(*options: str) -> list[int]:
        return sorted(each["letters"] for each in failed.json("dlq", "groups", *options))

    assert counts() == [1, 1, 4]
    assert counts("--state", "discarded") == counts("--owner", "ann") == counts("--key", "k1") == [1]
    assert counts("--since", "1h", "--state", "open", "--stage", "halve") == [3]
    assert counts("--until", "1h") == []


def test_who_looks_after_letters_is_in_the_list(failed: Shell) -> None:
    before = failed("dlq", "list").out
    failed("dlq", "assign", "2", "--to", "bob", "--yes")

    after = failed("dlq", "list").out

    assert "assignee" not in before
    assert "assignee" in after
    assert "bob" in after


def test_one_letter_is_shown_with_its_story(failed: Shell) -> None:
    letter = failed.json("dlq", "list", "--code", "NETWORK_RESET")["letters"][0]["id"]

    told = failed.json("dlq", "show", str(letter))
    shown = failed("dlq", "show", str(letter)).out

    assert (told["job"], told["code"], told["suggested_diagnosis"]) == (3, "NETWORK_RESET", "transient")
    assert [each["outcome"] for each in told["attempts"]] == ["retry", "dead"]
    assert told["job_facts"]["status"] == "failed"
    assert "in fetch" in told["frames"]["own"][-1]
    assert told["sanitized_context"]["stage"] == "fetch"
    assert "1 frame of your code" in shown
    assert shown.index("of your code") < shown.index("of libraries")
    assert "Check that the host is up" in shown


def test_edits_and_operations_are_shown_without_values(failed: Shell) -> None:
    with connect() as rd, changing(rd) as db:
        db.execute(
            "INSERT INTO edits (letter_id, job_id, part, before, after, at, actor) VALUES (1, 2, 'input', ?, ?, 9.0, 'ann')",
            (b"0", b"555"),
        )
        db.execute(
            "INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason) VALUES (9.0, 'ann', 'edit', 'letter', '1', 'a slip')"
        )

    told, shown = failed.json("dlq", "show", "1"), failed("dlq", "show", "1").out

    assert [(each["part"], each["actor"]) for each in told["edits"]] == [("input", "ann")]
    assert "555" not in json.dumps(told["edits"])
    assert [each["verb"] for each in told["operations"]] == ["edit"]
    assert "a slip" in shown


@pytest.mark.untraced
def test_a_letter_whose_replay_failed_again_is_past_and_the_new_one_is_marked(failed: Shell) -> None:
    with connect() as rd, changing(rd) as db:
        db.execute("UPDATE dead_letters SET state = 'replaying' WHERE job_id = 2")
        db.execute(
            "UPDATE jobs SET status = 'queued', round = 2, finished_at = NULL, error_code = NULL, error_message = NULL WHERE id = 2"
        )
    failed("worker", "flows:orders", "--until-idle")

    told, shown = failed.json("job", "show", "2"), failed("job", "show", "2").out
    letter = told["dead_letter"]["id"]

    assert [(each["state"], each["outcome"]) for each in told["past_letters"]] == [("returned", "same")]
    assert (told["dead_letter"]["state"], told["dead_letter"]["is_escalated"]) == ("open", True)
    assert "of round 1: returned (same)" in shown
    assert f"dead letter {letter} (open, escalated)" in shown
    assert "open (escalated)" in failed("dlq", "list", "--state", "open").out
    assert failed.json("dlq", "show", str(letter))["follows"] == told["past_letters"][0]["id"]
    assert "It is escalated" in failed("job", "explain", "2").out
    assert [each["id"] for each in failed.json("dlq", "list", "--escalated")["letters"]] == [letter]
    assert [each["pending"] for each in failed.json("dlq", "groups", "--escalated")] == [1]
    assert failed.json("dlq", "assign", "--escalated", "--to", "ann", "--yes")["changed"] == 1
    assert [each["id"] for each in failed.json("dlq", "list", "--assignee", "ann")["letters"]] == [letter]


def test_wrong_letters_groups_cursors_and_times_are_refused(failed: Shell) -> None:
    wrong = {
        ("show", "9"): (1, "Close to it are: 4, 5"),
        ("show", "900"): (1, "The last dead letter is 5"),
        ("list", "--group", "zz"): (1, "Close to it are: v1:"),
        ("list", "--before", "yesterday"): (2, "must be the cursor of a page"),
        ("list", "--since", "soon"): (2, "A time ago (30m, 2h, 7d)"),
        ("list", "--state", "dead"): (2, "discarded"),
        ("list", "--category", "odd"): (2, "rate_limit"),
        ("list", "--pipeline", "order"): (1, "pipeline is not known here, got 'order'. Did you mean orders?"),
        ("groups", "--pipeline", "nope"): (1, "Known here: orders, sleepers."),
        ("list", "--stage", "half"): (1, "Did you mean halve?"),
        ("list", "--stage", "later", "--pipeline", "orders"): (1, "Known here: fetch, halve."),
        ("groups", "--code", "BUG_COD"): (1, "Did you mean BUG_CODE?"),
        ("list", "--code", "SHOP_KY"): (1, "Known here: BUG_CODE, NETWORK_RESET."),
        ("list", "--code", "NOT_FOUDN"): (1, "Did you mean NOT_FOUND"),
        ("discard", "--pipeline", "order", "--yes"): (1, "Did you mean orders?"),
        ("list", "--since", "1h", "--until", "2h"): (2, "since must be before until"),
    }

    for arguments, (code, words) in wrong.items():
        ended = failed("dlq", *arguments)
        assert (ended.code, words in ended.err) == (code, True), (arguments, ended.err)


def test_a_job_is_explained_with_the_next_command_to_type(failed: Shell) -> None:
    told = failed.json("job", "explain", "3")
    shown = failed("job", "explain", "3").out

    assert (told["status"], len(told["attempts"])) == ("failed", 2)
    assert (
        told["next_steps"][-1]
        == f"Record the cause: redrive dlq triage {told['letter']} --diagnosis transient"
    )
    assert "It was classified as NETWORK_RESET (category network)" in shown
    assert "would have continued with stage 'halve'" in shown
    assert "Nothing is to be done." in failed("job", "explain", "1").out
    assert "Close to it are" in failed("job", "explain", "8").err


def test_a_job_has_a_timeline(failed: Shell) -> None:
    told = failed.json("job", "timeline", "3")

    assert [each["what"] for each in told] == ["queued", "processing", "retry", "processing", "failed"]
    assert "exhausted" in failed("job", "timeline", "3").out
    assert failed("job", "timeline", "99").code == 1


@pytest.mark.req("FG-4.2")
def test_retries_errors_and_stages_are_reported_as_table_json_and_picture(failed: Shell) -> None:
    retries = failed.json("report", "retries", "--pipeline", "orders")
    errors = failed.json("report", "errors", "--pipeline", "orders")
    stages = failed.json("report", "stages", "--pipeline", "orders")

    assert [(each["retries"], each["jobs"]) for each in retries] == [("0", 4), ("1", 1), ("2", 0), ("3+", 0)]
    assert [(each["code"], each["failures"]) for each in errors] == [("BUG_CODE", 3), ("NETWORK_RESET", 2)]
    assert [(each["stage"], each["attempts"], each["ok"]) for each in stages] == [
        ("fetch", 6, 4),
        ("halve", 4, 1),
    ]
    for name, word in (("retries", "80.0%"), ("errors", "60.0%"), ("stages", "25.0%")):
        assert word in failed("report", name, "--pipeline", "orders").out
        assert ET.fromstring(failed("report", name, "-o", "svg").out).tag.endswith("svg")


def test_a_pipeline_and_a_run_are_accounted_for(failed: Shell) -> None:
    failed("run", "start", "flows:orders", "items.jsonl")

    of_pipeline = failed.json("report", "account", "--pipeline", "sleepers")
    shown = failed("report", "account", "--pipeline", "orders")

    assert (of_pipeline["total"], of_pipeline["dead"], of_pipeline["adds_up"]) == (1, 1, True)
    assert "adds up" in shown.out
    assert ET.fromstring(failed("report", "account", "-p", "orders", "-o", "svg").out) is not None
    assert failed("report", "account").code == 2
    assert "Did you mean orders?" in failed("report", "account", "-p", "order").err
    assert failed("report", "account", "--run", "77").code == 1


def test_an_account_that_does_not_add_up_ends_with_1(failed: Shell) -> None:
    with connect() as rd:
        change_rows(rd, "UPDATE tallies SET jobs = jobs + 1")

    ended = failed("report", "account", "--pipeline", "sleepers")

    assert ended.code == 1
    assert "differ from the total by -1" in ended.err


def test_a_shell_completes_groups_codes_and_stages(failed: Shell) -> None:
    class Typed:
        def __init__(self, database_url: str | None = None) -> None:
            self.params = {"database_url": database_url}

    group = failed.json("dlq", "groups")[0]["fingerprint"].removeprefix("v1:")

    assert group in complete_groups(Typed())  # type: ignore[arg-type]
    assert complete_codes(Typed()) == ["BUG_CODE", "NETWORK_RESET"]  # type: ignore[arg-type]
    assert complete_stages(Typed()) == ["fetch", "halve", "later"]  # type: ignore[arg-type]
    assert complete_codes(Typed("sqlite:///nowhere/at/all.db")) == []  # type: ignore[arg-type]


def test_a_mistyped_state_is_refused_with_the_nearest(failed: Shell) -> None:
    refused = failed("dlq", "list", "--state", "opened")

    assert refused.code == 2
    assert "Did you mean open?" in refused.err
    assert len(failed.json("dlq", "list", "--state", "open")["letters"]) > 0


def test_jobs_are_listed_by_key(failed: Shell) -> None:
    failed("submit", "flows:orders", "4", "--key", "order-4")

    assert [each["key"] for each in failed.json("job", "list", "--key", "order-4")] == ["order-4"]
    assert failed.json("job", "list", "--key", "order-5") == []


def test_a_payload_without_quotes_is_refused_with_the_way_to_type_it(shell: Shell) -> None:
    refused = shell("submit", "flows:orders", "https://example.org/a")

    assert """'"https://example.org/a"'""" in refused.err
    assert "quotes of its own" not in shell("submit", "flows:orders", "{broken").err


def test_what_a_database_cannot_take_is_wrong_input_and_not_a_bug(failed: Shell) -> None:
    """NUL cannot be typed; halves of surrogate pairs come from arguments that are no UTF-8."""
    for command, field in (
        (("dlq", "list", "--owner", "a\udc80b"), "owner"),
        (("dlq", "assign", "1", "--to", 501 * "a", "--yes"), "assignee"),
        (("breaker", "open", 501 * "a", "--new", "--yes"), "breaker"),
        (("pipeline", "pause", "orders", "--actor", 501 * "a"), "actor"),
    ):
        refused = failed(*command)

        assert refused.code == 2, refused.err
        assert f"error: {field} must be a " in refused.err
        assert "Traceback" not in refused.err
