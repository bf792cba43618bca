# SPDX-License-Identifier: Apache-2.0
"""A database on a server, from the command line: creating it, working on it, and what is wrong with an address."""

from __future__ import annotations

import signal
import socket
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from redrive import Redrive, connect
from redrive.cli.commands import worker as worker_command
from redrive.cli.commands.worker import connect_when_started
from redrive.engine.worker.worker import RESEND_SECONDS
from redrive.errors import StoreUnavailableError
from redrive.store.statements import workers as worker_sql
from redrive.store.versions import newest
from redrive.testing import VirtualClock
from tests.databases import Schemas
from tests.e2e.shell import Shell, free_ports, until

SECRET = "hunter2-of-the-test"
Run = Callable[..., tuple[int, str]]


@contextmanager
def refusing(state: str, message: str) -> Generator[int]:
    """Return the port of a server that refuses every connection with an error."""
    fields = b"".join(
        kind + text.encode() + b"\0"
        for kind, text in ((b"S", "FATAL"), (b"V", "FATAL"), (b"C", state), (b"M", message))
    )
    answer = b"E" + struct.pack(">i", len(fields) + 5) + fields + b"\0"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link:
                    link.recv(4_096)
                    link.sendall(answer)

        thread = threading.Thread(target=refuse)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def address(port: int) -> str:
    return f"postgresql://ann:{SECRET}@127.0.0.1:{port}/shop?sslmode=disable&gssencmode=disable&connect_timeout=5"


@pytest.fixture
def run(shell: Shell) -> Run:
    """Runs a command; returns its exit code and all it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        ended = shell(*arguments)
        return ended.code, ended.out + ended.err

    return run


def assert_one_line(output: str, *words: str) -> None:
    assert "Traceback" not in output
    assert SECRET not in output
    plain = " ".join(output.split())
    for word in words:
        assert word in plain, output


@pytest.mark.parametrize(
    ("state", "message", "hint"),
    [
        ("28P01", 'password authentication failed for user "ann"', "Check user, password"),
        ("3D000", 'database "shop" does not exist', "Check user, password"),
        ("53300", "sorry, too many clients already", "Check that the server runs"),
    ],
)
def test_a_server_that_refuses_is_one_line_with_the_fix(
    run: Run, state: str, message: str, hint: str
) -> None:
    with refusing(state, message) as port:
        code, output = run("job", "list", "--database-url", address(port))

    assert code != 0
    assert_one_line(output, message, hint, "postgresql://ann@127.0.0.1")


def test_a_server_that_is_not_there_is_one_line_with_the_fix(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    code, output = run("job", "list", "--database-url", address(port))

    assert code != 0
    assert_one_line(output, "Check that the server runs", "postgresql://ann@127.0.0.1")


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        (f"postgresql://ann:{SECRET}@[host/shop", "libpq can read"),
        (f"postgresql://ann:{SECRET}@host/shop?nonsense=1", "libpq does not know, got '?nonsense=...'"),
        (f"postgresql://ann:{SECRET}@host/shop?sslmod=require", "Did you mean sslmode?"),
        (f"postgresql://ann:{SECRET}@host:abc/shop", "must have a port from 1 to 65535, got 'abc'"),
        (
            f"postgresql://ann:{SECRET}@one:5432,two:99999/shop",
            "must have a port from 1 to 65535, got '99999'",
        ),
        (f"postgresql://ann:{SECRET}@host/shop?schema=a-b", "must name a schema"),
        (f"mysql://ann:{SECRET}@host/shop", "must be a path"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(
    run: Run, url: str, rule: str
) -> None:
    code, output = run("job", "list", "--database-url", url)

    assert code == 2
    assert_one_line(output, rule)


def test_a_worker_waits_for_a_server_that_starts(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = [
        StoreUnavailableError(database="shop", cause="it shuts down", server="starting"),
        StoreUnavailableError(database="shop", cause="it starts", server="starting"),
        None,
        StoreUnavailableError(database="shop", cause="Connection refused", server="absent"),
        StoreUnavailableError(database="shop", cause="Connection refused", server="absent"),
        None,
        StoreUnavailableError(database="shop", cause="could not translate host name"),
    ]

    def connected(url: str) -> Redrive:
        if (error := found.pop(0)) is not None:
            raise error
        return connect(url)

    monkeypatch.setattr(worker_command, "connect", connected)
    before = clock.monotonic()

    with connect_when_started(str(tmp_path / "jobs.db")):
        assert clock.monotonic() - before == RESEND_SECONDS + 2 * RESEND_SECONDS
    assert caplog.text.count("waiting for the database") == 2
    with pytest.raises(StoreUnavailableError, match="Connection refused"):
        connect_when_started("shop")
    before = clock.monotonic()
    with connect_when_started(str(tmp_path / "jobs.db"), is_awaited=True):
        assert clock.monotonic() - before == RESEND_SECONDS
    with pytest.raises(StoreUnavailableError, match="translate host name"):
        connect_when_started("shop", is_awaited=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_its_server_is_ended_by_a_signal(shell: Shell, number: int) -> None:
    worker = shell.start("worker", "flows:orders", "--database-url", address(free_ports(1)))
    assert worker.stderr is not None
    warning = worker.stderr.readline()

    worker.send_signal(number)

    assert worker.wait(20) == 0
    assert "waiting for the database" in warning
    assert "Connection refused" in warning
    assert SECRET not in warning + worker.stderr.read()


def test_a_worker_that_is_to_end_by_itself_does_not_wait_for_a_server(run: Run) -> None:
    code, output = run("worker", "flows:orders", "--until-idle", "--database-url", address(free_ports(1)))

    assert code != 0
    assert_one_line(output, "Connection refused", "Check that the server runs")


def test_a_command_that_reads_creates_nothing(run: Run, fresh: str) -> None:
    for _ in range(2):
        code, output = run("job", "list", "--database-url", fresh)
        assert code != 0
        assert_one_line(output, "is no database", "migrate create")


def test_migrate_prints_and_creates_the_tables(run: Run, fresh: str, schemas: Schemas) -> None:
    code, printed = run("migrate", "--print", "--database-url", fresh)
    assert code == 0
    assert "CREATE SCHEMA" in printed
    assert "CREATE TABLE jobs" in printed
    with psycopg.connect(schemas.server) as db:
        db.execute(printed.replace("BEGIN;", "").replace("COMMIT;", ""))
        db.rollback()

    code, output = run("migrate", "--database-url", fresh)
    assert code == 0
    assert f"schema version 0 -> {newest()}" in " ".join(output.split())
    code, output = run("migrate", "--database-url", fresh)
    assert "up to date" in output
    assert run("job", "list", "--database-url", fresh)[0] == 0


def test_migrate_partitions_the_attempts_before_there_are_any(run: Run, fresh: str, schemas: Schemas) -> None:
    wish = ("migrate", "--partition-attempts")
    printed = run(*wish, "--print", "--database-url", fresh)[1]
    with psycopg.connect(schemas.server) as db:
        db.execute(printed.replace("BEGIN;", "").replace("COMMIT;", ""))
        db.rollback()
    for said in (
        f"schema version 0 -> {newest()}, attempts are partitioned by week",
        ": attempts are partitioned",
    ):
        assert said in " ".join(run(*wish, "--database-url", fresh)[1].split())
    with psycopg.connect(schemas.server) as db:
        table = f"{fresh.rpartition('=')[2]}.attempts"
        found = db.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = %s::regclass", (table,))
        assert found.fetchone() == (4,)
    assert run("doctor", "--database-url", fresh)[0] == 0


def test_attempts_that_are_there_and_those_in_a_file_are_not_partitioned(
    run: Run, fresh: str, schemas: Schemas, tmp_path: Path
) -> None:
    assert run("migrate", "--database-url", fresh)[0] == 0
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(
            f"INSERT INTO {fresh.rpartition('=')[2]}.attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at,"
            " ended_at, outcome, burned) VALUES (1, 1, 1, 1, 1, 'w', 1, 1, 'ok', 1)"
        )

    code, output = run("migrate", "--partition-attempts", "--database-url", fresh)
    assert code != 0
    assert_one_line(output, "cannot be partitioned any more", "Name a new schema")
    code, output = run("migrate", "--partition-attempts", "--database-url", str(tmp_path / "jobs.db"))
    assert code != 0
    assert_one_line(output, "a file has no partitions", "name a server")
    assert not (tmp_path / "jobs.db").exists()


def test_a_schema_that_is_newer_than_the_code_is_one_line_with_the_fix(
    run: Run, fresh: str, schemas: Schemas
) -> None:
    assert run("migrate", "--database-url", fresh)[0] == 0
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"UPDATE {fresh.rpartition('=')[2]}.installation SET version = 99")

    for command in (("job", "list"), ("migrate",), ("doctor",)):
        code, output = run(*command, "--database-url", fresh)
        assert code != 0
        assert_one_line(output, "schema version 99", "Use the version of redrive that created it")


def test_a_schema_of_another_program_is_refused_and_left_alone(
    run: Run, fresh: str, schemas: Schemas
) -> None:
    name = fresh.rpartition("=")[2]
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.theirs (id integer)")

    code, output = run("migrate", "--database-url", fresh)

    assert code != 0
    assert_one_line(output, "none of redrive's", "Name another schema")


def test_a_role_that_may_not_is_told_what_it_lacks(run: Run, fresh: str, schemas: Schemas) -> None:
    with psycopg.connect(schemas.server, autocommit=True) as db:
        role = f"{fresh.rpartition('=')[2]}_guest"
        db.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN")
        try:
            guest = fresh.replace("//postgres:@", f"//{role}:@")
            code, output = run("migrate", "--database-url", guest)
            assert code != 0
            assert_one_line(output, "permission denied", "Grant it to the role")
            assert run("migrate", "--database-url", fresh)[0] == 0
            code, output = run("job", "list", "--database-url", guest)
            assert code != 0
            assert_one_line(output, "permission denied", "Grant it to the role")
        finally:
            db.execute(f"DROP ROLE {role}")


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "postgresql.md"


def test_the_documented_queries_show_what_waits(shell: Shell, fresh: str, schemas: Schemas) -> None:
    name = fresh.rpartition("=")[2]
    watch = PAGE.read_text(encoding="utf-8").partition("## What to watch")[2]
    queries = watch.partition("```sql\n")[2].partition("```")[0].replace("redrive.", f"{name}.")
    assert shell("submit", "flows:orders", "5", "--database-url", fresh).code == 0

    with psycopg.connect(schemas.server) as db:
        found = [db.execute(query.encode()).fetchall() for query in queries.split(";") if query.strip()]

    assert found[0] == [("orders", "queued", 1)]
    assert found[1][0][0] == "orders"
    assert found[2] == []
    used, most = found[5][0]
    assert 0 < used < most
    assert found[6:] == [[], []]


FLOW = """
import os
import psycopg
from redrive import Pipeline, stage

@stage
def note(number: int) -> int:
    with psycopg.connect(os.environ["EFFECTS"], autocommit=True) as db:
        db.execute("INSERT INTO effects (number, process) VALUES (%s, %s)", (number, os.getpid()))
    return number

@stage
def double(number: int) -> int:
    return 2 * number

notes = Pipeline("notes", [note, double])
"""


@pytest.fixture
def effects(
    schemas: Schemas, monkeypatch: pytest.MonkeyPatch
) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """A table outside of redrive that shows which effects took place."""
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS effects; CREATE TABLE effects (number bigint, process bigint)")
        monkeypatch.setenv("EFFECTS", schemas.server)
        yield db
        db.execute("DROP TABLE effects")


@pytest.mark.untraced
def test_two_processes_share_a_database_and_every_effect_takes_place_once(
    shell: Shell, fresh: str, effects: psycopg.Connection[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address in the environment is all that an application changes. Their connections are cut in between."""
    monkeypatch.setenv("REDRIVE_DATABASE_URL", fresh)
    schema = fresh.rpartition("=")[2]
    shell.write("notes_flow.py", FLOW)
    shell.write("items.jsonl", *range(200))
    assert shell("migrate").code == 0
    workers = [shell.start("worker", "notes_flow:notes", "--concurrency", "4") for _ in range(2)]
    with connect(fresh) as rd:
        until(lambda: len(rd.store.query(worker_sql.workers())) == 2, workers[0])
    assert shell("submit", "notes_flow:notes", "--file", "items.jsonl").code == 0

    until(lambda: _count(effects, "count(*)") >= 50, workers[0])
    effects.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (schema,)
    )
    until(lambda: shell.json("stats")["complete"] == 200, workers[0])

    for worker in workers:
        worker.terminate()
        out, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, out + err
        assert f"serves notes from postgres, schema {schema}, 4 at once" in err
    assert _count(effects, "count(*)") == 200
    assert _count(effects, "count(DISTINCT number)") == 200
    assert _count(effects, "count(DISTINCT process)") == 2


def _count(db: psycopg.Connection[tuple[object, ...]], what: str) -> int:
    ((found,),) = db.execute(f"SELECT {what} FROM effects").fetchall()
    return int(str(found))


def test_a_file_is_moved_to_a_server(run: Run, shell: Shell, schemas: Schemas) -> None:
    run("migrate", "--database-url", "here.db")
    target = schemas.address("moved")

    code, output = run("transfer", "here.db", target, "--actor", "ann", "--output", "json")
    again, repeated = run("transfer", "here.db", target, "--output", "json")
    run("submit", "flows:orders", "5", "--database-url", target)
    used, refused = run("transfer", "here.db", target)

    assert (code, again) == (0, 0)
    assert '"operations": 1' in output
    assert repeated == output
    assert used != 0
    assert_one_line(refused, "it is not empty", "Name a new schema")
