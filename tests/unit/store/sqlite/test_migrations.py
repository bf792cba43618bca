# SPDX-License-Identifier: Apache-2.0
"""Which databases are opened, made, brought up to date or refused; what is refused is left as it is."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from redrive import Pipeline, connect, stage
from redrive.cli.input.options import open_any_version
from redrive.core.decide import NoDecision, OldDecision, Reason
from redrive.core.decision_text import decode_decision, reason_and_sentence
from redrive.core.stop_reason import stop_sentence_in
from redrive.errors import SchemaMismatchError, StoreRefusedError
from redrive.ops.audit import Actor
from redrive.ops.checkup.doctor import examine, unopened
from redrive.ops.jobs.explain import explain
from redrive.ops.upkeep.backup import backup
from redrive.ops.upkeep.migrations import migrate, schema_state
from redrive.store import versions
from redrive.store.sqlite import migrations
from redrive.store.statements import operations as operation_sql
from redrive.store.statements.text import text_of

ANN = Actor("ann", "a test")
KNOWN = versions.newest()


@stage
def double(number: int) -> int:
    return number * 2


SHOP = Pipeline("shop", [double])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def older(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with a job, made before the present version was."""
    with connect(path) as rd:
        rd.submit(SHOP, 1)
    release(monkeypatch, "ALTER TABLE jobs ADD COLUMN mood TEXT;")
    return path


def release(monkeypatch: pytest.MonkeyPatch, *later: str) -> None:
    """Let there be later versions of the schema."""
    texts = {f"later {place}": text for place, text in enumerate(later)}
    before = text_of
    monkeypatch.setattr(versions, "MIGRATIONS", [*versions.MIGRATIONS, *texts])
    monkeypatch.setattr(migrations, "text_of", lambda dialect, name: texts.get(name) or before(dialect, name))


def facts(path: Path) -> tuple[int, bool]:
    """Return the version of a database, and whether its jobs have a mood."""
    with closing(sqlite3.connect(path)) as db:
        columns = {row[1] for row in db.execute("PRAGMA table_info(jobs)")}
        return int(db.execute("PRAGMA user_version").fetchone()[0]), "mood" in columns


@pytest.mark.parametrize("is_there", [False, True])
def test_a_database_that_is_not_there_or_empty_is_made_at_once(path: Path, is_there: bool) -> None:
    if is_there:
        path.touch()

    with connect(path) as rd:
        assert rd.submit(SHOP, 1).status == "queued"

    assert facts(path) == (KNOWN, False)


def test_an_older_database_is_refused_and_left_as_it_is(older: Path) -> None:
    with pytest.raises(SchemaMismatchError) as refused:
        connect(older)

    assert (refused.value.found, refused.value.known) == (KNOWN, KNOWN + 1)
    assert "redrive migrate" in refused.value.hint
    assert facts(older) == (KNOWN, False)


def test_an_older_database_is_opened_once_it_was_migrated(older: Path) -> None:
    before = migrate(older, ANN)

    assert (before.found, before.known) == (KNOWN, KNOWN + 1)
    assert facts(older) == (KNOWN + 1, True)
    with connect(older) as rd:
        assert rd.jobs.counts() == {"queued": 1}
        assert [(row.actor, row.verb) for row in rd.store.query(operation_sql.operations(limit=5))] == [
            ("ann", "migrate"),
        ]


def test_a_migration_is_done_as_a_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(path).close()
    release(monkeypatch, "ALTER TABLE jobs ADD COLUMN mood TEXT;", "ALTER TABLE nowhere ADD COLUMN x TEXT;")

    with pytest.raises(Exception, match="nowhere"):
        migrate(path, ANN)

    assert facts(path) == (KNOWN, False)


def test_an_older_database_can_be_copied_before_it_is_migrated(older: Path, tmp_path: Path) -> None:
    with open_any_version(str(older)) as rd:
        report = backup(rd.store, tmp_path / "copy.db", ANN)

    assert report.jobs == 1
    assert facts(older) == facts(tmp_path / "copy.db") == (KNOWN, False)


def test_a_newer_database_is_refused_even_to_be_copied(path: Path) -> None:
    connect(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {KNOWN + 1}")

    with (
        pytest.raises(SchemaMismatchError, match="has schema version") as refused,
        open_any_version(str(path)),
    ):
        pass
    assert "a newer one" in refused.value.hint


def test_the_database_of_another_program_is_refused_and_not_touched(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE jobs (id INTEGER)")
        db.commit()
    before = path.read_bytes()

    with pytest.raises(StoreRefusedError, match="not a redrive database"):
        connect(path)
    with pytest.raises(StoreRefusedError, match="not a redrive database"):
        migrate(path, ANN)

    assert path.read_bytes() == before


VERSION_1 = Path(__file__).parent / "version_1"


def schema_of(db: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return the definition of everything in a database, without comments, quotes and spacing."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    bare = {(kind, name): re.sub(r"--[^\n]*", "", sql).replace('"', "") for kind, name, sql in rows}
    return {what: re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split())) for what, sql in bare.items()}


@pytest.fixture
def first(path: Path) -> Path:
    """A database of version 1, with rows in every state."""
    with closing(sqlite3.connect(path)) as db:
        for name in ("schema", "rows"):
            db.executescript((VERSION_1 / f"{name}.sql").read_text())
        db.execute("PRAGMA user_version = 1")
    return path


def test_the_schema_is_version_1_with_all_migrations(first: Path, tmp_path: Path) -> None:
    migrate(first, ANN)
    connect(tmp_path / "new.db").close()

    with closing(sqlite3.connect(first)) as old, closing(sqlite3.connect(tmp_path / "new.db")) as new:
        assert schema_of(old) == schema_of(new)
        assert old.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_database_of_version_1_is_refused_examined_and_copied_as_it_is(first: Path, tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatchError, match="has schema version 1"):
        connect(first)
    with open_any_version(str(first)) as rd:
        report = backup(rd.store, tmp_path / "copy.db", ANN)

    found = unopened(first)
    assert found is not None
    assert found.about == "schema"
    assert report.jobs == 17
    assert facts(tmp_path / "copy.db") == facts(first) == (1, False)
    assert "CREATE TABLE replays" in schema_state(first).sql


WORDS = {
    "installation": ("installations", {}),
    "campaigns": ("replays", {"selection": "filter", "stamped_to": "marked_to"}),
    "dead_letters": ("dead_letters", {"campaign_id": "replay_id", "verdict": "outcome"}),
    "letter_groups": ("letter_groups", {"error_class": "exception"}),
    "letter_facts": ("letter_facts", {"error_class": "exception"}),
    "letter_tallies": ("letter_tallies", {"campaign_id": "replay_id"}),
}
"""Tables and columns whose names changed after version 1."""


def rows_of(db: sqlite3.Connection, table: str, columns: list[str]) -> list[tuple[object, ...]]:
    return sorted(db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall(), key=repr)


def test_a_migration_loses_no_row_and_no_value(first: Path) -> None:
    with closing(sqlite3.connect(first)) as db:
        tables = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if name not in {"sqlite_sequence", "attempts", "campaign_skips"}
        ]
        columns = {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for name in tables}
        # These are changed, and have tests of their own.
        columns["imports"].remove("attempts")
        columns["operations"].remove("change")
        columns["operations"].remove("subject")
        columns["letter_facts"].remove("context")
        columns["campaigns"].remove("why")
        columns["runs"].remove("reason")
        before = {name: rows_of(db, name, columns[name]) for name in tables}

    migrate(first, ANN)

    with closing(sqlite3.connect(first)) as db:
        for name in tables:
            table, renamed = WORDS.get(name, (name, {}))
            after = rows_of(db, table, [renamed.get(column, column) for column in columns[name]])
            if name == "operations":
                after = [row for row in after if "migrate" not in row]
            if name == "campaigns":
                after = [tuple("stamping" if one == "marking" else one for one in row) for row in after]
            assert before[name]
            assert sorted(after, key=repr) == before[name], name


def test_a_migration_keeps_why_a_replay_or_a_run_was_stopped_as_text(first: Path) -> None:
    with closing(sqlite3.connect(first)) as db, db:
        db.execute("UPDATE campaigns SET why = 'paused by \"ann\"' WHERE id = 3")
        stopped = {
            "replays": dict(db.execute("SELECT id, why FROM campaigns").fetchall()),
            "runs": dict(db.execute("SELECT id, reason FROM runs").fetchall()),
        }

    migrate(first, ANN)

    with closing(sqlite3.connect(first)) as db:
        for table, before in stopped.items():
            after = dict(db.execute(f"SELECT id, reason FROM {table}").fetchall())
            assert {id_: stop_sentence_in(text) for id_, text in after.items()} == before
    with connect(first) as rd:
        assert rd.runs.report(1).reason == "1 of 2 failed"
        assert 'cancel it: paused by "ann"' in str(rd.replays.status(3).waits_for)
        assert "cancel it: the canary failed" in str(rd.replays.status(4).waits_for)


def test_a_migration_removes_hashes_without_a_key_and_nothing_else_of_a_context(first: Path) -> None:
    query = "SELECT CAST(context AS TEXT) FROM letter_facts ORDER BY letter_id"
    old = b'{"stage":"check","input_sha256":"8d969eef6ecad3c2"}'
    with closing(sqlite3.connect(first, isolation_level=None)) as db:
        db.execute("UPDATE letter_facts SET context = ? WHERE letter_id = 1", (old,))
        before = [json.loads(text) for (text,) in db.execute(query)]

    migrate(first, ANN)

    with closing(sqlite3.connect(first)) as db:
        after = [json.loads(text) for (text,) in db.execute(query)]
    assert before[0].pop("input_sha256")
    assert after == before


def test_a_migration_keeps_every_attempt_and_what_was_decided_about_it(first: Path) -> None:
    kept = "job_id, dispatch, lane_id, round, attempt, worker_id, config, started_at, ended_at, outcome, burned, code, error_class"
    kept = f"SELECT seq, {kept}, message, http_status, notes FROM attempts ORDER BY seq"
    with closing(sqlite3.connect(first)) as db:
        before = db.execute(kept).fetchall()
        said = db.execute("SELECT reason, sentence FROM attempts ORDER BY seq").fetchall()

    migrate(first, ANN)

    with closing(sqlite3.connect(first)) as db:
        assert db.execute(kept.replace("error_class", "exception")).fetchall() == before
        decisions = [text for (text,) in db.execute("SELECT decision FROM attempts ORDER BY seq")]
    for (reason, sentence), text in zip(said, decisions, strict=True):
        if sentence is not None:
            renamed = "retry_after" if reason == "told_delay" else reason
            assert reason_and_sentence(text) == (renamed, sentence)
        elif reason is None:
            assert text is None
        elif reason in {"told_delay", "retryable"}:
            renamed = "retry_after" if reason == "told_delay" else reason
            assert decode_decision(text) == OldDecision(renamed)
        else:
            assert isinstance(decode_decision(text), NoDecision)
    assert decode_decision(decisions[2]) == NoDecision(Reason.WORKER_LOST)


def test_a_migration_reads_from_a_skip_what_its_sentence_has(first: Path) -> None:
    migrate(first, ANN)

    with closing(sqlite3.connect(first)) as db:
        rows = db.execute(
            "SELECT replay_id, letter_id, kind, job_id, stage, detail, at FROM replay_skips ORDER BY 1, 2"
        ).fetchall()
    assert rows == [
        (2, 4, "discarded", None, None, None, 1002.0),
        (6, 1, "key", 12, None, None, 1004.0),
        (6, 2, "erased", None, None, None, 1004.0),
        (6, 3, "running", None, None, "queued", 1004.0),
        (6, 4, "stage", None, "ship", None, 1004.0),
        (6, 5, "type", None, "fetch", "Expected `int`: got `str`", 1004.0),
        (7, 1, "old", None, None, "it was edited meanwhile", 1004.0),
    ]


def test_a_migration_keeps_imported_attempts_with_their_decisions_as_values(first: Path) -> None:
    with closing(sqlite3.connect(first)) as db:
        before = json.loads(db.execute("SELECT attempts FROM imports").fetchone()[0])

    migrate(first, ANN)

    with closing(sqlite3.connect(first)) as db:
        after = json.loads(db.execute("SELECT attempts FROM imports").fetchone()[0])
    new = [(each.pop("reason"), each.pop("decision", None)) for each in after]
    for each in before:
        del each["reason"]
    assert after == before
    sentences = [each["sentence"] for each in before]
    assert new == [
        ("permanent", {"kind": "old", "reason": "permanent", "text": sentences[0]}),
        ("retry_after", {"kind": "old", "reason": "retry_after", "text": sentences[1]}),
        ("retry_after", {"kind": "old", "reason": "retry_after"}),
        ("worker_lost", {"kind": "ended", "reason": "worker_lost"}),
        (None, None),
    ]
    with connect(first) as rd:
        assert "Why: the worker died." in " ".join(explain(rd.store, 12).sentences)


def test_a_migration_renames_what_the_operator_log_has_about_a_replay(first: Path) -> None:
    migrate(first, ANN)

    with closing(sqlite3.connect(first)) as db:
        changes = db.execute("SELECT change FROM operations ORDER BY id LIMIT 2").fetchall()
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute("UPDATE operations SET change = NULL")
    assert json.loads(changes[0][0]) == {
        "filter": {"pipeline": "shop"},
        "plan": {"canary": [1, 5]},
        "replay": 2,
    }
    assert changes[1] == (None,)


def test_a_migration_gives_what_the_operator_log_is_about_a_kind(first: Path) -> None:
    with closing(sqlite3.connect(first)) as db, db:
        db.executemany(
            "INSERT INTO operations (at, actor, verb, subject) VALUES (1, 'eve', ?, ?)",
            [("backup", "letter 4"), ("backup", "file letter 4"), ("pause", "pipeline my shop")],
        )

    migrate(first, ANN)

    with connect(first) as rd:
        log = [(each.verb, each.subject_kind, each.subject_id) for each in rd.events.operations()]
        assert [each.verb for each in rd.letters.show(4).operations] == ["discard"]
    assert log == [
        ("replay", "replay", "2"),
        ("discard", "letter", "4"),
        ("backup", "file", "letter 4"),
        ("backup", "file", "letter 4"),
        ("pause", "pipeline", "my shop"),
        ("migrate", "schema", f"1 -> {KNOWN}"),
    ]


def test_a_migrated_job_is_explained_with_the_sentences_of_before(first: Path) -> None:
    migrate(first, ANN)

    with connect(first) as rd:
        one, two = explain(rd.store, 11).attempts
        assert (
            "Why: the failure is retryable, and the dependency asked for this delay. The decision: attempt 1 of 2"
            in one.decided
        )
        assert two.decided.endswith("The decision: attempt 2 of 2 failed with NETWORK_RESET: none is left.")
        assert "Why: the worker died." in explain(rd.store, 4).attempts[0].decided


def test_a_migrated_database_is_in_order_and_goes_on(first: Path) -> None:
    migrate(first, ANN)

    with connect(first) as rd:
        assert [each for each in examine(rd.store, is_deep=True) if each.level == "problem"] == []
        assert [each.status for each in rd.replays.list()][-2:] == ["running", "marking"]
        assert rd.replays.cancel(1).status == "cancelled"
        assert rd.replays.start(ids=[1]).status == "marking"
