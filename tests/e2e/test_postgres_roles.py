# SPDX-License-Identifier: Apache-2.0
"""Roles on a server: each has the rights that are documented for it, can do its work with them, and nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Generator

import psycopg
import pytest

from redrive import connect
from tests.databases import Schemas
from tests.e2e.cli.test_postgres import PAGE, assert_one_line
from tests.e2e.shell import Shell
from tests.unit.build import one_stage


async def echo(value: int) -> int:
    return value


@pytest.fixture
def roles(shell: Shell, fresh: str, schemas: Schemas) -> Generator[dict[str, str]]:
    """The addresses of a worker, a reader, an operator and a submitter that have the rights that are documented."""
    name = fresh.rpartition("=")[2]
    grants = PAGE.read_text(encoding="utf-8").partition("```sql\n")[2].partition("```")[0]
    for of, mine in (
        ("SCHEMA redrive", f"SCHEMA {name}"),
        ("redrive_", f"{name}_"),
        ("redrive.", f"{name}."),
    ):
        grants = grants.replace(of, mine)
    kinds = ("worker", "reader", "operator", "submitter")
    assert shell("migrate", "--database-url", fresh).code == 0
    with psycopg.connect(schemas.server, autocommit=True) as db:
        for kind in kinds:
            db.execute(f"CREATE ROLE {name}_{kind} LOGIN")
        try:
            db.execute(grants)
            yield {kind: fresh.replace("//postgres:@", f"//{name}_{kind}:@") for kind in kinds}
        finally:
            for kind in kinds:
                db.execute(f"DROP OWNED BY {name}_{kind}; DROP ROLE {name}_{kind}")


def test_workers_and_readers_need_only_the_rights_that_are_documented(
    shell: Shell, roles: dict[str, str]
) -> None:
    worker, reader = roles["worker"], roles["reader"]

    assert shell("submit", "flows:orders", "5", "--database-url", worker).code == 0
    assert shell("worker", "flows:orders", "--until-idle", "--database-url", worker).code == 0
    assert shell("pipeline", "pause", "orders", "--database-url", worker).code == 0
    listed = shell("job", "list", "--database-url", reader)
    assert "complete" in listed.out
    assert shell("events", "--database-url", reader).code == 0
    for command in (("pipeline", "resume", "orders"), ("submit", "flows:orders", "6")):
        refused = shell(*command, "--database-url", reader)
        assert refused.code != 0
        assert_one_line(refused.err, "permission denied", "Grant it to the role")


def test_a_submitter_can_submit_at_the_first_stage_and_do_nothing_else(
    shell: Shell, roles: dict[str, str], schemas: Schemas
) -> None:
    submitter = roles["submitter"]
    assert shell("worker", "flows:orders", "--until-idle", "--database-url", roles["worker"]).code == 0

    assert shell("submit", "flows:orders", "5", "--key", "k", "--database-url", submitter).code == 0
    again = shell("submit", "flows:orders", "5", "--key", "k", "-o", "json", "--database-url", submitter)
    shell.write("items.jsonl", 6, 7)
    assert shell("submit", "flows:orders", "--file", "items.jsonl", "--database-url", submitter).code == 0
    assert '"is_duplicate": true' in again.out
    listed = shell("job", "list", "-o", "json", "--database-url", roles["reader"])
    assert listed.out.count('"queued"') == 3

    for command in (
        ("job", "list"),
        ("worker", "flows:orders", "--until-idle"),
        ("pipeline", "pause", "orders"),
    ):
        refused = shell(*command, "--database-url", submitter)
        assert refused.code != 0
        assert_one_line(refused.err, "permission denied", "Grant it to the role")
    assert_refused(submitter, schemas)


def assert_refused(submitter: str, schemas: Schemas) -> None:
    """See that a submitter cannot do by hand what its commands do not do."""
    schema = submitter.rpartition("=")[2]
    with psycopg.connect(schemas.server, user=f"{schema}_submitter", autocommit=True) as db:
        db.execute(f"SET search_path TO {schema}")
        for statement in (
            "SELECT * FROM jobs",
            "SELECT payload FROM jobs",
            "SELECT secret FROM installations",
            "INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, created_at) VALUES ('orders', 2, 'queued', 5, 0, 0)",
            "UPDATE jobs SET status = 'processing', lease_token = 1, worker_id = 'w'",
            "UPDATE jobs SET lease_token = NULL",
            "DELETE FROM jobs",
            "INSERT INTO attempts SELECT * FROM attempts",
            "INSERT INTO replay_rules VALUES ('orders', '{}')",
            "UPDATE replay_rules SET rules = '{}'",
            "UPDATE lanes SET position = 0",
            "INSERT INTO breakers VALUES ('api', '{}')",
            "INSERT INTO workers SELECT * FROM workers",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement)
        later = "SELECT submit_jobs((SELECT id FROM installations ORDER BY number DESC LIMIT 1), json_build_array(json_build_object("
        later += "'lane', (SELECT id FROM lanes WHERE position > 0 LIMIT 1), 'payload', '5', 'priority', 5, 'run_at', 0))::text)"
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="submitted at the first stage"):
            db.execute(later)
        # A table of its own in place of one of redrive's is not looked at.
        db.execute("CREATE TEMPORARY TABLE lanes AS SELECT id, pipeline, stage, 0 AS position FROM lanes")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="submitted at the first stage"):
            db.execute(
                later.replace("FROM lanes WHERE position > 0", f"FROM {schema}.lanes WHERE position > 0")
            )


LIMITED = """
from redrive import Limit, Pipeline, stage

@stage(limits=[Limit("api", rate="100/s")])
def use(number: int) -> int:
    return number

uses = Pipeline("uses", [use])
"""
WORK = """
dlq triage 1 --diagnosis data --yes
dlq remediate 1 --evidence fixed --safe --yes
dlq edit 1 --input five.json --yes
dlq discard 2 --yes
dlq restore 2 --yes
dlq assign 2 --to bob --yes
dlq note 2 --text seen --yes
dlq export
job retry 2 --yes
dlq remediate --pipeline orders --diagnosis data --evidence fixed --safe --yes
replay start 2 --yes
replay pause 1
replay resume 1
replay cancel 1 --yes
replay close 1 --note done
job cancel 7 --yes
job erase 3 --yes
job result 1
pipeline pause orders
pipeline resume orders
breaker open model --new --yes
breaker isolate model --yes
breaker close model
limit pause api --yes
limit set api --rate 10/s
limit resume api
schedule add nightly flows:orders --cron '0 3 * * *' --payload 5
schedule prune old --cron '0 3 * * *' --complete 30d
schedule drop nightly --yes
schedule drop old --yes
run label 1 hello
run pause 1
run cancel 1 --yes
events --operations
stats
"""
"""What an operator does, in this order."""


def test_an_operator_needs_only_the_rights_that_are_documented(
    shell: Shell, roles: dict[str, str], schemas: Schemas
) -> None:
    operator, worker = roles["operator"], roles["worker"]
    shell.write("limited.py", LIMITED)
    shell.write("five.json", 5)
    shell.write("items.jsonl", 5, 0, 0, 0)
    shell("submit", "flows:orders", "--file", "items.jsonl", "--database-url", worker)
    shell("submit", "limited:uses", "1", "--database-url", worker)
    served = ("flows:orders", "flows:asking", "limited:uses")
    assert shell("worker", *served, "--until-idle", "--concurrency", "1", "--database-url", worker).code == 0
    shell("submit", "flows:sleepers", "20", "--database-url", worker)
    shell("submit", "flows:sleepers", "21", "--database-url", worker)
    with connect(worker) as rd:
        rd.runs.open(one_stage(echo), [1, 2])

    for command in WORK.strip().splitlines():
        ended = shell(*shlex.split(command), "--database-url", operator)
        assert ended.code == 0, f"{command}: {ended.out}{ended.err}"

    for refused in (
        ("submit", "flows:orders", "6"),
        ("worker", "flows:orders", "--until-idle"),
        ("prune", "--complete", "0s", "--yes"),
    ):
        ended = shell(*refused, "--database-url", operator)
        assert ended.code != 0, refused
        assert_one_line(ended.err, "permission denied", "Grant it to the role")
    with psycopg.connect(
        schemas.server, user=f"{operator.rpartition('=')[2]}_operator", autocommit=True
    ) as db:
        db.execute(f"SET search_path TO {operator.rpartition('=')[2]}")
        for statement in (
            "INSERT INTO jobs SELECT * FROM jobs",
            "DELETE FROM jobs",
            "INSERT INTO attempts SELECT * FROM attempts",
            "DELETE FROM attempts",
            "INSERT INTO workers SELECT * FROM workers",
            "INSERT INTO dead_letters SELECT * FROM dead_letters",
            "UPDATE replay_rules SET rules = '{}'",
            "UPDATE operations SET actor = 'bob'",
            "DELETE FROM operations",
            "SELECT secret FROM installations",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement)


def test_a_reader_does_not_see_the_key_of_the_hashes(roles: dict[str, str], schemas: Schemas) -> None:
    schema = roles["reader"].rpartition("=")[2]
    with psycopg.connect(schemas.server, user=f"{schema}_reader", autocommit=True) as db:
        db.execute(f"SET search_path TO {schema}")

        assert db.execute("SELECT count(id) FROM installations").fetchone() == (1,)
        for statement in ("SELECT secret FROM installations", "SELECT * FROM installations"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement)
