# SPDX-License-Identifier: Apache-2.0
"""Keeping a database well from the command line: doctor, backup, prune, migrate."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from redrive import connect
from redrive.store import versions
from redrive.store.sqlite import migrations
from redrive.store.statements import jobs as job_sql
from redrive.store.statements.text import text_of
from redrive.testing import virtual_time
from tests.e2e.shell import Shell, until

DAY = 86_400.0


def findings(shell: Shell, *arguments: str) -> dict[str, list[tuple[str, str]]]:
    """Return what doctor says, by what it is about."""
    ended = shell("doctor", *arguments, "-o", "json")
    told = ended.json
    assert told["is_well"] == (ended.code == 0)
    found: dict[str, list[tuple[str, str]]] = {}
    for each in told["findings"]:
        found.setdefault(each["about"], []).append((each["level"], each["sentence"]))
        assert (each["advice"] is None) == (each["level"] == "ok")
    return found


def test_doctor_finds_nothing_wrong_with_a_healthy_database(shell: Shell, dialect: str) -> None:
    shell("submit", "flows:orders", "5")
    shell("worker", "flows:orders", "--until-idle")

    found = findings(shell, "--deep")
    shown = shell("doctor", "flows:orders")

    assert {level for each in found.values() for level, _ in each} == {"ok"}
    of_file = {"database", "disk"} if dialect == "sqlite" else set[str]()
    assert {"schema", "clock", "leases", "breakers", "integrity", "counters"} | of_file <= set(found)
    assert shown.code == 0
    assert shown.out.endswith("no problems\n")


def test_doctor_says_which_worker_is_missing(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("submit", "flows:asking", "5", "--run-at", "+2h")

    ended = shell("doctor")

    assert ended.code == 1
    assert "no live worker serves orders: 1 job due" in ended.out
    assert "-> Start one: redrive worker" in ended.out
    assert "no live worker serves asking: its jobs are due later" in ended.out


def test_doctor_counts_its_warnings(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("pipeline", "pause", "orders")

    ended = shell("doctor")

    assert ended.code == 0
    assert ended.out.endswith("no problems, 1 warning\n")


def test_doctor_compares_with_the_code_it_is_given(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    (shell.folder / "renamed.py").write_text(
        "from redrive import Pipeline, stage\n\n@stage\ndef load(number: int) -> int:\n    return number\n\n"
        'orders = Pipeline("orders", [load])\n',
        encoding="utf-8",
    )
    guessed = findings(shell)
    shell("worker", "renamed:orders", "--until-idle")

    assert "stages" not in guessed
    assert findings(shell)["stages"] == [
        ("warn", "1 job queued in orders.fetch, which load has replaced"),
    ]
    assert findings(shell, "renamed:orders")["stages"] == [
        ("problem", "1 job queued in orders.fetch, a stage the pipeline no longer has"),
    ]
    assert "stages" not in findings(shell, "flows:orders")


@pytest.mark.sqlite
def test_doctor_on_no_database_a_strange_file_and_a_newer_one(shell: Shell) -> None:
    missing = shell("doctor")
    Path("strange.db").write_text("this is no database at all, whatever its name says", encoding="utf-8")
    strange = shell("doctor", "--database-url", "strange.db")
    shell("migrate")
    with sqlite3.connect("redrive.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    newer = shell("doctor")

    assert (missing.code, strange.code, newer.code) == (1, 1, 1)
    assert "redrive.db does not exist" in missing.out
    assert "strange.db: not a redrive database" in strange.out
    assert not list(Path().glob("strange.db?*"))
    assert "has schema version 99" in newer.out
    assert "a newer one" in newer.out


@pytest.mark.sqlite
def test_an_older_redrive_stops_at_a_newer_database(shell: Shell) -> None:
    shell("migrate")
    with sqlite3.connect("redrive.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    for command in (
        ["worker", "flows:orders", "--until-idle"],
        ["stats"],
        ["migrate"],
        ["migrate", "--print"],
    ):
        ended = shell(*command)
        assert ended.code == 1
        assert "has schema version 99; this redrive needs version" in ended.err


@pytest.mark.sqlite
def test_doctor_warns_of_a_large_database_and_of_one_that_others_can_read(shell: Shell) -> None:
    shell("migrate")
    Path("redrive.db").chmod(0o644)

    found = findings(shell, "--size-max", "0.00001")

    assert found["size"][0][0] == "warn"
    assert "jobs are kept until they are pruned" in found["size"][0][1]
    assert "mode 0640" in found["database"][0][1]


@pytest.mark.parametrize("size", ["nan", "-1", "0", "inf"])
def test_doctor_refuses_a_size_that_is_none(shell: Shell, size: str) -> None:
    shell("migrate")

    ended = shell("doctor", f"--size-max={size}")

    assert ended.code == 2
    assert "--size-max must be more than 0 GiB" in ended.err


@pytest.mark.sqlite
def test_a_backup_is_a_database_that_goes_on(shell: Shell) -> None:
    shell.write("items.jsonl", *range(1, 20))
    shell("submit", "flows:orders", "--file", "items.jsonl")

    report = shell.json("backup", "copy.db", "--reason", "before the upgrade")
    worked = shell("worker", "flows:orders", "--until-idle", "--database-url", "copy.db")

    assert (report["jobs"], report["target"]) == (19, "copy.db")
    assert stat.S_IMODE(Path("copy.db").stat().st_mode) == 0o600
    assert worked.code == 0
    assert shell.json("stats", "--database-url", "copy.db") == {"complete": 18, "failed": 1, "total": 19}
    assert shell.json("stats") == {"queued": 19, "total": 19}
    assert shell.json("events", "--operations")[-1]["verb"] == "backup"


@pytest.mark.sqlite
def test_a_backup_never_takes_the_place_of_a_file(shell: Shell) -> None:
    shell("migrate")
    Path("copy.db").write_text("precious", encoding="utf-8")

    refused = shell("backup", "copy.db")
    nowhere = shell("backup", "no/such/folder/copy.db")

    assert (refused.code, nowhere.code) == (2, 1)
    assert "never overwrites a file" in refused.err
    assert "No such file or directory" in nowhere.err
    assert Path("copy.db").read_text(encoding="utf-8") == "precious"
    assert list(Path().glob("*.partial*")) == []


@pytest.mark.sqlite
def test_a_backup_is_whole_while_a_worker_writes(shell: Shell) -> None:
    shell.write("items.jsonl", *range(1, 1_000))
    shell("submit", "flows:orders", "--file", "items.jsonl")
    worker = shell.start("worker", "flows:orders")
    with connect() as rd:
        until(lambda: bool(rd.store.query(job_sql.last_event())[0]), worker)
        copies = [shell.json("backup", f"copy-{place}.db")["jobs"] for place in range(2)]
        worker.terminate()
        worker.communicate(timeout=60)

    assert copies == [999] * 2
    for place in range(2):
        found = findings(shell, "--deep", "--database-url", f"copy-{place}.db")
        assert (found["integrity"][0][0], found["counters"][0][0]) == ("ok", "ok")
        assert shell.json("stats", "--database-url", f"copy-{place}.db")["total"] == 999


def test_pruning_counts_asks_and_deletes_what_ended_long_ago(shell: Shell) -> None:
    with virtual_time() as clock:
        shell.write("items.jsonl", 1, 2, 0)
        shell("submit", "flows:orders", "--file", "items.jsonl")
        shell("worker", "flows:orders", "--until-idle")
        shell("submit", "flows:orders", "5")
        shell("job", "cancel", "4", "--yes")
        clock.advance(10 * DAY)
        shell("submit", "flows:orders", "5")
        shell("worker", "flows:orders", "--until-idle")

        ages = ("--complete", "7d", "--cancelled", "1w")
        dry = shell.json("prune", *ages, "--dry-run")
        refused = shell("prune", *ages, stdin="n\n")
        before = shell.json("stats")
        done = shell.json("prune", *ages, "--yes", "--reason", "spring")
        again = shell.json("prune", *ages)

    assert dry == {"complete": 2, "cancelled": 1, "total": 3, "undelivered": 0, "is_dry_run": True}
    assert refused.code == 1
    assert "2 complete jobs, 1 cancelled jobs" in refused.err
    assert before["total"] == 5
    assert done == {"complete": 2, "cancelled": 1, "total": 3, "undelivered": 0, "is_dry_run": False}
    assert again["total"] == 0
    assert shell.json("stats") == {"complete": 1, "failed": 1, "total": 2}
    assert [each["id"] for each in shell.json("job", "list")] == [5, 3]
    assert {level for each in findings(shell, "--deep").values() for level, _ in each} <= {"ok", "warn"}
    assert shell.json("events", "--operations")[-1]["reason"] == "spring"


def test_failed_jobs_are_pruned_only_by_name(shell: Shell) -> None:
    with virtual_time() as clock:
        shell("submit", "flows:orders", "0")
        shell("worker", "flows:orders", "--until-idle")
        clock.advance(2 * DAY)

        shell("prune", "--complete", "1d", "--yes")
        kept = shell.json("stats")
        said = shell("prune", "--failed", "36h", "--yes")

    assert kept == {"failed": 1, "total": 1}
    assert "does not shrink" in said.err
    assert shell.json("stats") == {"total": 0}


def test_jobs_that_somebody_still_has_to_be_told_of_stay_unless_named(shell: Shell) -> None:
    (shell.folder / "deaf.py").write_text(
        "from redrive import Pipeline, stage\n\n@stage\ndef fail(number: int) -> int:\n    raise PermissionError\n\n"
        "def on_dead(event):\n    raise ConnectionError\n\n"
        'calls = Pipeline("calls", [fail], on_dead=on_dead)\n',
        encoding="utf-8",
    )
    with virtual_time() as clock:
        shell("submit", "deaf:calls", "1")
        shell("worker", "deaf:calls", "--until-idle")
        clock.advance(2 * DAY)

        kept = shell("prune", "--failed", "1d", "--yes", "-o", "json")
        gone = shell.json("prune", "--failed", "1d", "--with-undelivered", "--yes")

    assert kept.json == {"failed": 0, "total": 0, "undelivered": 1, "is_dry_run": False}
    assert "1 more job kept: notices to a hook or a sink are undelivered" in kept.err
    assert gone == {"failed": 1, "total": 1, "undelivered": 0, "is_dry_run": False}
    assert shell.json("stats") == {"total": 0}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "needs a state and an age"),
        (["--complete", "soon"], "must be a duration"),
        (["--complete", "-3d"], "must be a duration"),
        (["--complete", "30"], "must be a duration with a unit"),
        (["--failed", "900000000w"], "less than a hundred years"),
    ],
)
def test_what_cannot_be_pruned_is_refused(shell: Shell, arguments: list[str], words: str) -> None:
    shell("migrate")

    ended = shell("prune", *arguments, "--yes")

    assert ended.code == 2
    assert words in ended.err


@pytest.mark.sqlite
def test_the_schema_is_printed_without_making_a_database(shell: Shell) -> None:
    printed = shell("migrate", "--print")

    assert printed.code == 0
    assert "CREATE TABLE jobs" in printed.out
    assert not Path("redrive.db").exists()
    with sqlite3.connect("by-hand.db") as db:
        db.executescript(printed.out)
    db.close()
    assert shell("submit", "flows:orders", "5", "--database-url", "by-hand.db").code == 0


@pytest.mark.sqlite
def test_a_database_is_made_and_found_up_to_date(shell: Shell) -> None:
    known = versions.newest()

    made = shell("migrate", "--reason", "first")
    again = shell("migrate")
    printed = shell("migrate", "--print")
    told = shell.json("migrate")

    assert f"schema version 0 -> {known}" in made.err
    assert "is up to date" in again.err
    assert "is up to date" in printed.out
    assert told == {"database": "redrive.db", "found": known, "known": known, "sql": "", "is_applied": True}
    assert [each["verb"] for each in shell.json("events", "--operations")] == ["migrate"]


@pytest.mark.sqlite
def test_an_older_database_is_brought_up_to_date(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("submit", "flows:orders", "5")
    known = versions.newest()
    before = text_of
    monkeypatch.setattr(versions, "MIGRATIONS", [*versions.MIGRATIONS, "next"])
    monkeypatch.setattr(
        migrations,
        "text_of",
        lambda dialect, name: (
            "ALTER TABLE jobs ADD COLUMN mood TEXT;" if name == "next" else before(dialect, name)
        ),
    )

    told = shell("doctor")
    printed = shell("migrate", "--print")
    applied = shell("migrate")

    assert told.code == 1
    assert "make a backup, then: redrive migrate" in told.out
    assert "ADD COLUMN mood" in printed.out
    assert "CREATE TABLE jobs" not in printed.out
    assert f"schema version {known} -> {known + 1}" in applied.err
    assert shell("doctor").code == 1, "only because no worker serves what is queued"
    assert shell.json("stats") == {"queued": 1, "total": 1}
