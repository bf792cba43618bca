# SPDX-License-Identifier: Apache-2.0
"""Dead letters from the command line: triaged, edited, erased, exported and imported."""

from __future__ import annotations

import json
import os
import stat

import pytest

from redrive.cli.commands import dlq_transfer
from tests.e2e.shell import ANN, ORDERS, Shell, letter


@pytest.mark.req("CR-5.1")
def test_triage_records_the_diagnosis_with_what_failed_and_how(shop: Shell) -> None:
    done = shop.json(
        *(
            "dlq",
            "triage",
            "1",
            "--diagnosis",
            "code_defect",
            "--reason",
            "divides",
            "--actor",
            "ann",
            "--yes",
        )
    )

    assert done == {"subject": "letter 1", "count": 1, "changed": 1, "left": {}}
    told = letter(shop)
    assert (told["state"], told["diagnosis"]) == ("triaged", "code_defect")
    assert (told["error_class"], told["exception"], told["stage"]) == ("BUG_CODE", "ZeroDivisionError", "pay")
    assert told["reason"]
    assert [each["outcome"] for each in told["attempts"]] == ["dead"]
    last = shop.json("events", "--operations")[-1]
    assert (last["actor"], last["verb"], last["subject"], last["reason"]) == (
        ANN,
        "triage",
        "letter 1",
        "divides",
    )


def test_a_diagnosis_has_to_be_one_of_four(shop: Shell) -> None:
    wrong = shop("dlq", "triage", "1", "--diagnosis", "bad-luck", "--yes")

    assert wrong.code == 2
    assert "code_defect" in wrong.err
    assert shop("dlq", "triage", "1", "--yes").code == 2


def test_the_exact_count_is_shown_before_anything_is_done(shop: Shell) -> None:
    group = letter(shop)["group"]

    refused = shop("dlq", "discard", "--group", group, stdin="n\n")
    assert refused.code == 1
    assert "Discard 2 dead letters (2 open)?" in refused.err
    assert letter(shop)["state"] == "open"

    done = shop("dlq", "discard", "--group", group.partition(":")[2][:10], stdin="y\n")
    assert done.code == 0
    assert [letter(shop, n)["state"] for n in (1, 2)] == ["discarded", "discarded"]
    restored = shop.json("dlq", "restore", "2", "--yes")
    assert restored["changed"] == 1
    again = shop("dlq", "restore", "2", "--yes")
    assert again.code == 1
    assert "1 not changed: it is open" in again.err


@pytest.mark.req("CR-5.2")
def test_evidence_is_demanded_and_kept(shop: Shell) -> None:
    missing = shop("dlq", "remediate", "1", "--safe", "--yes")
    empty = shop("dlq", "remediate", "1", "--evidence", " ", "--safe", "--yes")
    early = shop("dlq", "remediate", "1", "--evidence", "fixed in 1.2", "--safe", "--yes")

    assert (missing.code, empty.code, early.code) == (2, 2, 1)
    assert "--evidence" in missing.err
    assert "evidence must be a text" in empty.err
    assert "triage it first, or give a diagnosis as well" in early.err
    assert letter(shop)["state"] == "open"

    shop.json("dlq", "remediate", "1", "-e", "fixed in 1.2", "--safe", "-d", "code_defect", "--yes")
    told = letter(shop)
    assert (told["state"], told["evidence"], told["diagnosis"]) == ("ready", "fixed in 1.2", "code_defect")
    assert [each["verb"] for each in shop.json("events", "--operations")] == ["triage", "remediate"]


@pytest.mark.req("CR-5.3")
def test_somebody_has_to_confirm_that_a_replay_is_safe(shop: Shell) -> None:
    shop.json("dlq", "triage", "--pipeline", "shop", "-d", "transient", "--yes")

    refused = shop("dlq", "remediate", "--pipeline", "shop", "-e", "it is up again", "--yes")

    assert refused.code == 2
    assert "--safe" in refused.err
    assert letter(shop)["state"] == "triaged"
    assert shop.json("dlq", "remediate", "-p", "shop", "-e", "up again", "--safe", "--yes")["changed"] == 2


def test_letters_are_given_to_people_and_noted_on(shop: Shell) -> None:
    shop.json("dlq", "assign", "1", "--to", "bob", "--yes")
    shop.json("dlq", "note", "1", "--text", "asked the supplier", "--yes")
    told = letter(shop)

    assert told["assignee"] == "bob"
    assert [(each["verb"], each["reason"]) for each in told["operations"]] == [
        ("assign", None),
        ("note", "asked the supplier"),
    ]
    shop.json("dlq", "assign", "1", "--nobody", "--yes")
    assert letter(shop)["assignee"] is None
    assert shop("dlq", "assign", "1", "--yes").code == 2
    assert "note must be a text" in shop("dlq", "note", "1", "--text", "", "--yes").err


def test_either_an_id_or_a_filter_says_which_letters_are_meant(shop: Shell) -> None:
    neither = shop("dlq", "discard", "--yes")
    both = shop("dlq", "discard", "1", "--pipeline", "shop", "--yes")
    nobody = shop("dlq", "discard", "5", "--yes")
    none = shop("dlq", "discard", "--code", "TIMEOUT", "--yes")

    assert (neither.code, both.code, nobody.code, none.code) == (2, 2, 1, 1)
    assert "Give an id, or --group" in neither.err
    assert "cannot be combined with a filter" in both.err
    assert "Close to it are: 1, 2" in nobody.err
    assert "no dead letters match" in none.err
    assert shop.json("stats") == {"failed": 2, "total": 2}


def test_an_edit_from_a_file_is_shown_redacted_and_asked_about(shop: Shell) -> None:
    shop.write("new.json", json.dumps({"amount": 5, "email": "ann@example.com"}))

    refused = shop("dlq", "edit", "1", "--input", "new.json", "--target", "orders:shop", stdin="n\n")
    done = shop("dlq", "edit", "1", "--input", "new.json", "--target", "orders:shop", stdin="y\n")

    assert (refused.code, done.code) == (1, 0)
    assert '+  "amount": 5,' in done.out
    assert "Use this as the input of a replay of letter 1?" in done.err
    assert "ann@example.com" not in done.out + done.err
    assert len(letter(shop)["edits"]) == 1


def test_a_patch_is_read_from_standard_input(shop: Shell) -> None:
    patch = json.dumps([{"op": "replace", "path": "/amount", "value": 5}])

    done = shop("dlq", "edit", "1", "--patch", "-", "--yes", "-o", "json", stdin=patch)

    assert done.json == {"letter": 1, "part": "input", "edit": 1, "is_checked": False, "unknown_fields": []}


def test_a_field_that_the_type_does_not_know_is_told(shop: Shell) -> None:
    shop.write("more.json", json.dumps({"amount": 5, "email": "ann@example.com", "extra": 1}))

    done = shop("dlq", "edit", "1", "--input", "more.json", "--target", "orders:shop", "--yes")

    assert done.code == 0
    assert "unknown fields, which the stage will ignore: /extra" in done.err


def test_edits_are_looked_at_later_and_taken_back(shop: Shell) -> None:
    none = shop("dlq", "edits", "1")
    patch = json.dumps([{"op": "replace", "path": "/amount", "value": 5}])
    shop("dlq", "edit", "1", "--patch", "-", "--actor", "ann", "--yes", stdin=patch)
    back = shop("dlq", "edit", "1", "--original", stdin="y\n")
    shown = shop("dlq", "edits", "1")
    told = shop.json("dlq", "edits", "1")
    again = shop("dlq", "edit", "1", "--original", "--yes")

    assert (none.code, none.err) == (0, "this letter has no edits\n")
    assert back.code == 0
    assert '+  "amount": 0,' in back.out
    for line in ("the input before the first edit:", f"edit 1 of 2: input, by {ANN} at ", '+  "amount": 5,'):
        assert line in shown.out
    assert (told["edits"][0]["part"], told["edits"][0]["actor"]) == ("input", ANN)
    assert json.loads(told["originals"]["input"])["amount"] == 0
    assert "ann@example.com" not in shown.out + json.dumps(told)
    assert (again.code, "would not change" in again.err) == (2, True)
    assert shop("dlq", "edits", "9").code == 1


def test_a_dry_run_from_the_start_says_that_an_edited_input_is_not_used(shop: Shell) -> None:
    shop("dlq", "remediate", "1", "--evidence", "mended", "--safe", "--diagnosis", "data", "--yes")
    shop("dlq", "edit", "1", "--input", "-", "--yes", stdin='{"amount": 1, "email": "x"}')

    used = shop("dlq", "validate", "1")
    unused = shop("dlq", "validate", "1", "--from-start")

    assert (used.code, unused.code) == (0, 0)
    assert "not used" not in used.out
    assert "its edited input will be ignored" in " ".join(unused.out.split())
    assert "all of them can be replayed; see the notices" in unused.err


def test_an_edit_whose_values_were_erased_is_still_told(shop: Shell) -> None:
    shop("dlq", "edit", "1", "--input", "-", "--yes", stdin='{"amount": 1, "email": "x"}')
    shop("job", "erase", "1", "--yes")

    shown = shop("dlq", "edits", "1")

    assert "its values were erased" in shown.out


def test_an_edit_that_does_not_fit_names_the_field(shop: Shell) -> None:
    shop.write("wrong.json", json.dumps({"amount": "five", "email": "ann@example.com"}))
    shop.write("broken.json", '{"amount": ')

    wrong = shop("dlq", "edit", "1", "--input", "wrong.json", "--target", "orders:shop", "--yes")
    broken = shop("dlq", "edit", "1", "--input", "broken.json", "--yes")
    absent = shop("dlq", "edit", "1", "--input", "absent.json", "--yes")
    unknown = shop("dlq", "edit", "4", "--input", "wrong.json", "--yes")

    assert (wrong.code, broken.code, absent.code, unknown.code) == (2, 2, 2, 1)
    assert "$.amount" in wrong.err
    assert "does not fit" in broken.err
    assert "--input cannot be read" in absent.err
    assert "Close to it are: 1, 2" in unknown.err


@pytest.mark.parametrize(
    ("flags", "stdin", "code"),
    [
        (("--yes",), "", 2),
        (("--show-values", "--yes"), "", 0),
        (("--show-values",), "y\ny\n", 0),
        (("--show-values",), "n\n", 1),
    ],
)
def test_an_editor_gets_the_redacted_view_unless_the_value_is_asked_for(
    shop: Shell, flags: tuple[str, ...], stdin: str, code: int
) -> None:
    """What still holds a mark is not saved. With --yes nobody is asked, not even about the raw value."""
    done = shop(
        *("dlq", "edit", "1", "--editor", "sed -i s/0,/7,/", "--target", "orders:shop"),
        *flags,
        stdin=stdin,
    )

    assert done.code == code
    assert ("still has a placeholder" in done.err) == (code == 2)
    assert ("with its secrets?" in done.err) == ("--yes" not in flags)
    assert "ann@example.com" not in done.out + done.err


def test_an_editor_that_fails_changes_nothing(shop: Shell) -> None:
    for editor in ("false", "no-such-editor-here", "'"):
        failed = shop("dlq", "edit", "1", "--editor", editor, "--yes")
        assert failed.code == 2
        assert "nothing was changed" in failed.err
    assert letter(shop)["edits"] == []


def test_an_export_goes_into_a_file_of_its_owner_and_is_taken_in_elsewhere(shop: Shell) -> None:
    done = shop.json("dlq", "export", "--to", "letters.jsonl")
    again = shop("dlq", "export", "--to", "letters.jsonl")
    shown = shop("dlq", "export", "2")
    other = ("--database-url", "other.db")
    shop("migrate", *other)
    refused = shop("dlq", "import", "letters.jsonl", *other, stdin="n\n")
    first = shop.json("dlq", "import", "letters.jsonl", "--yes", *other)
    second = shop.json("dlq", "import", "letters.jsonl", "--yes", *other)

    assert done == {"file": "letters.jsonl", "letters": 2, "is_with_values": False}
    assert stat.S_IMODE((shop.folder / "letters.jsonl").stat().st_mode) == 0o600
    assert (again.code, refused.code) == (2, 1)
    assert "Import the dead letters of letters.jsonl (2 lines)?" in refused.err
    assert json.loads(shown.out)["letter"]["id"] == 2
    assert first == {"made": 2, "known": 0, "over": {}, "refused": []}
    assert second == {"made": 0, "known": 2, "over": {}, "refused": []}
    assert len(shop.json("dlq", "list", *other)["letters"]) == 2


def test_an_export_that_takes_long_reports_how_far_it_is(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlq_transfer, "REPORT_SECONDS", 0.0)

    done = shop("dlq", "export")

    assert done.err.splitlines() == ["1 of 2 letters exported", "2 of 2 letters exported"]
    assert len(done.out.splitlines()) == 2


def test_an_import_counts_the_letters_of_what_cannot_be_read_twice_as_well(shop: Shell) -> None:
    exported = shop("dlq", "export").out
    other = ("--database-url", "other.db")
    shop("migrate", *other)
    pipe, end = os.pipe()
    os.write(end, exported.encode() + b"\n")
    os.close(end)

    taken = shop("dlq", "import", f"/dev/fd/{pipe}", *other, stdin="y\n")
    os.close(pipe)
    unasked = shop("dlq", "import", "-", *other, stdin=exported)
    given = shop("dlq", "import", "-", "--yes", "-o", "json", *other, stdin=exported)

    assert "(2 lines)?" in taken.err
    assert taken.code == 0
    assert unasked.code == 2
    assert "--yes" in unasked.err
    assert given.json == {"made": 0, "known": 2, "over": {}, "refused": []}


def test_values_are_exported_only_where_the_code_lets_them_leave(shop: Shell) -> None:
    kept = shop("dlq", "export", "--with-values")
    shop("worker", "orders:open_shop", "--until-idle")
    shared = shop("dlq", "export", "1", "--with-values")

    assert kept.code == 2
    assert "ReplayRules.export of shop" in kept.err
    assert kept.out == ""
    assert json.loads(shared.out)["values"]["payload"] == {"amount": 0, "email": "ann@example.com"}


def test_garbage_is_refused_by_its_line_and_the_rest_is_taken_in(shop: Shell) -> None:
    line = shop("dlq", "export", "1").out.strip()
    shop.write("mixed.jsonl", "garbage", line)
    other = ("--database-url", "other.db")
    shop("migrate", *other)

    done = shop("dlq", "import", "mixed.jsonl", "--yes", *other)

    assert done.code == 1
    assert "line 1: it is not a line of an export" in done.err
    assert len(shop.json("dlq", "list", *other)["letters"]) == 1
    assert shop("dlq", "import", "absent.jsonl", "--yes").code == 2


def test_the_values_of_a_job_are_erased_after_asking(shop: Shell) -> None:
    shop("submit", "orders:shop", '{"amount": 1, "email": "x"}')

    running = shop("job", "erase", "3", "--yes")
    refused = shop("job", "erase", "1", stdin="n\n")
    done = shop.json("job", "erase", "1", "--yes", "--reason", "asked to")
    again = shop("job", "erase", "1", "--yes")
    unknown = shop("job", "erase", "9", "--yes")

    assert (running.code, refused.code, again.code, unknown.code) == (1, 1, 0, 1)
    assert "redrive job cancel 3" in running.err
    assert "can never be replayed" in refused.err
    assert (done["job"], done["is_new"]) == (1, True)
    assert "were already erased" in again.err
    assert "were erased" in shop("dlq", "edit", "1", "--editor", "true").err
    assert b"example.com" not in str(shop.json("job", "show", "1")).encode()


def test_an_act_by_filter_is_told_of_every_letter_it_changed_and_of_no_other(shop: Shell) -> None:
    shop("dlq", "discard", "2", "--yes")
    shop(
        "dlq",
        "triage",
        "--pipeline",
        "shop",
        "-d",
        "data",
        "--reason",
        "all at once",
        "--actor",
        "ann",
        "--yes",
    )

    def acts(number: int) -> list[str]:
        return [each["subject"] for each in letter(shop, number)["operations"]]

    assert (acts(1), acts(2)) == (["filter pipeline=shop"], ["letter 2"])
    assert (
        f"Done by {ANN}: triage (filter pipeline=shop), because: all at once."
        in shop("job", "explain", "1").out
    )


def test_the_operator_log_says_how_many_letters_and_what_was_before_and_after(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop("dlq", "triage", "--pipeline", "shop", "-d", "data", "--yes")
    shop("dlq", "remediate", "1", "-e", "mended", "--safe", "--yes")
    shop("dlq", "edit", "1", "--input", "-", "--yes", stdin='{"amount": 1, "email": "x"}')
    shop("pipeline", "pause", "shop")

    wide = shop("events", "--operations").out
    monkeypatch.setenv("COLUMNS", "80")
    narrow = shop("events", "--operations").out

    (triage,) = [line.split() for line in wide.splitlines() if " triage " in line]
    assert "2" in triage
    assert "open: 2 -> triaged, diagnosis: data" in wide
    assert "triaged, is safe: no -> ready, evidence: mended, is safe: yes" in wide
    assert "bytes: 38 -> bytes: 24" in wide
    assert "letters" in narrow
    assert "before -> after" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80


def test_a_job_is_not_sent_back_to_a_stage_the_pipeline_no_longer_has(shop: Shell) -> None:
    renamed = ORDERS.replace("def pay", "def charge").replace("[pay]", "[charge]")
    (shop.folder / "renamed_orders.py").write_text(renamed, encoding="utf-8")
    shop("dlq", "remediate", "1", "-e", "mended", "--safe", "-d", "data", "--yes")
    shop("worker", "renamed_orders:shop", "--until-idle")

    refused = shop("job", "retry", "1", "--yes")
    checked = shop("dlq", "validate", "1", "-o", "json")
    taken = shop("job", "retry", "1", "--target", "orders:shop", "--yes")

    assert (refused.code, taken.code) == (1, 0)
    assert "the pipeline no longer has its stage (pay: now it has charge)" in refused.err
    assert "@stage(name='pay')" in refused.err
    assert checked.json["obstacles"] == {"stage": 1}


def test_a_value_of_the_job_does_not_come_into_the_log_by_what_people_write(shell: Shell) -> None:
    (shell.folder / "orders.py").write_text(ORDERS, encoding="utf-8")
    shell.write("items.jsonl", *(json.dumps({"amount": 0, "email": "open sesame"}) for _ in range(3)))
    shell("submit", "orders:shop", "--file", "items.jsonl")
    shell("worker", "orders:shop", "--until-idle")

    shell.json("dlq", "note", "1", "--text", "she said open sesame aloud", "--yes")
    shell.json("dlq", "triage", "2", "-d", "data", "--reason", "open sesame is wrong", "--yes")
    shell.json("job", "erase", "3", "--reason", "open sesame leaked", "--yes")
    shell("submit", "orders:shop", '{"amount": 1, "email": "open sesame"}')
    shell.json("job", "cancel", "4", "--reason", "open sesame is old", "--yes")

    reasons = [each["reason"] for each in shell.json("events", "--operations")]
    assert sorted(reasons) == [
        "<payload:$.1> is old",
        "<payload:$.1> is wrong",
        "<payload:$.1> leaked",
        "she said <payload:$.1> aloud",
    ]


def test_a_value_that_is_nested_too_deep_is_refused_with_its_place(shop: Shell) -> None:
    deep = "[" * 300 + "]" * 300
    (shop.folder / "deep.json").write_text(f'{{"amount": 5, "email": {deep}}}', encoding="utf-8")

    refused = shop("dlq", "edit", "1", "--input", "deep.json", "--yes")

    assert refused.code == 2
    assert "nested deeper than 200 levels, below /email/0/0/0/0/0/..." in refused.err
    assert "make it flatter" in refused.err
