# SPDX-License-Identifier: Apache-2.0
"""Secrets planted wherever a stage can say one are searched for in every column, every log line and every answer."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from redrive import connect
from redrive.cli.app import app

from .herd import Herd, Scene
from .leaky import PLACES, SOURCES, Said, leaky, leaky_loop, leaky_process

VALUES = {
    ("jobs", "payload"),
    ("jobs", "input"),
    ("jobs", "result"),
    ("job_values", "value"),
    ("schedules", "payload"),
}
"""What users stored is theirs; everything else is told to operators, and safe."""
PIECE = 10
"""So many characters of a secret in a row are a leak as well."""
COMMANDS = [
    ["stats"],
    ["events"],
    ["events", "--limit", "1000"],
    ["job", "list"],
    ["job", "list", "--limit", "1000"],
    ["pipeline", "list"],
    ["breaker", "list"],
    ["dlq", "list"],
    ["dlq", "groups"],
    ["doctor"],
]


def pieces(secret: str) -> set[str]:
    """Return what of a secret may be found nowhere: itself and its parts, plain and as they stand in addresses."""
    halves = [secret[at : at + PIECE] for at in range(0, len(secret) - PIECE + 1, PIECE // 2)]
    return {form for part in (secret, *halves) for form in (part, quote(part, safe=""))}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, dict[str, str], str]]:
    """One database in which every secret was said in every way, and the log of the workers that did it."""
    scene = Scene(tmp_path_factory.mktemp("secrets"))
    planted = {
        "environment": secrets.token_hex(16),
        "password": f"{secrets.token_hex(4)}+{secrets.token_hex(4)}/{secrets.token_hex(4)}=",
        "payload": f"order of {secrets.token_hex(12)}",
        "elsewhere": f"sk-proj-{secrets.token_hex(24)}",
    }
    (scene.here / "secrets.json").write_text(json.dumps(planted), encoding="utf-8")
    with connect(scene.database) as rd:
        for pipeline in (leaky, leaky_process, leaky_loop):
            for place in PLACES:
                if pipeline is not leaky and place == "as_progress":
                    continue
                for source in SOURCES:
                    own = planted["payload"] if source == "payload" else ""
                    rd.submit(pipeline, Said(place, source, own))
    environment = {
        "SHOP_API_KEY": planted["environment"],
        "SHOP_DB_PASSWORD": planted["password"],
        "FAULTS_SECRETS": str(scene.here / "secrets.json"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with Herd(
            scene, "--until-idle", "--verbose", pipelines="leaky,leaky_process,leaky_loop", concurrency=32
        ) as herd:
            assert herd.wait() == 0
    yield scene, planted, herd.log()


def columns(db: sqlite3.Connection) -> list[tuple[str, str]]:
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [(table, row[1]) for table in tables for row in db.execute(f"PRAGMA table_info('{table}')")]


def found_in(text: str, planted: dict[str, str]) -> list[str]:
    return [source for source, secret in planted.items() if any(piece in text for piece in pieces(secret))]


def test_no_column_but_the_values_holds_a_secret(told: tuple[Scene, dict[str, str], str]) -> None:
    scene, planted, _ = told
    leaks = set()
    with scene.reading() as db:
        assert {"attempts", "dead_letters", "jobs", "outbox"} <= {table for table, _ in columns(db)}
        for table, column in columns(db):
            if (table, column) in VALUES:
                continue
            for (value,) in db.execute(f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'):
                text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
                leaks.update(
                    f"{table}.{column}: {source}: {text[:2000]}" for source in found_in(text, planted)
                )

    if leaks:
        pytest.fail("\n".join(sorted(leaks)[:20]), pytrace=False)


def test_the_secrets_were_said_everywhere(told: tuple[Scene, dict[str, str], str]) -> None:
    """Otherwise the other tests would find nothing because there was nothing to find."""
    scene, _, _ = told
    outcomes = dict(scene.read("SELECT outcome, count(*) FROM attempts GROUP BY 1"))

    assert {"ok", "retry", "hold", "dead", "cancelled"} <= set(outcomes)
    assert scene.read("SELECT count(*) FROM dead_letters WHERE message LIKE '%<payload:%'") != [(0,)]
    assert scene.count("progress IS NOT NULL") == len(SOURCES)
    assert scene.read("SELECT count(*) FROM attempts WHERE notes IS NOT NULL")[0][0]


def test_no_line_of_the_log_holds_a_secret(told: tuple[Scene, dict[str, str], str]) -> None:
    _, planted, log = told
    leaks = [line for line in log.splitlines() if found_in(line, planted)]

    assert "hook on_dead of job" in log
    assert leaks == []


def test_no_answer_of_the_command_line_holds_a_secret(told: tuple[Scene, dict[str, str], str]) -> None:
    scene, planted, _ = told
    runner = CliRunner()
    jobs = [str(row[0]) for row in scene.read("SELECT id FROM jobs")]
    answered, leaks = set(), []
    for command in [*COMMANDS, *(["job", "show", job] for job in jobs), *(["job", "explain", job] for job in jobs[:4])]:
        for form in ([], ["-o", "json"]):
            words = [*command, *form, "--database-url", str(scene.database)]
            said = runner.invoke(app, words, env={"COLUMNS": "4000", "NO_COLOR": "1"})
            if said.exit_code == 0 and said.output:
                answered.add(" ".join(command[:2] if command[0] == "job" else command[:1]))
            if found_in(said.output, planted):
                leaks.append(" ".join(words))

    assert {"stats", "job show"} <= answered
    assert leaks == []


def test_no_file_beside_the_database_holds_a_secret(told: tuple[Scene, dict[str, str], str]) -> None:
    scene, planted, _ = told
    others = [file for file in scene.here.iterdir() if file.is_file() and is_ours(file)]

    assert others
    for file in others:
        assert found_in(file.read_text(encoding="utf-8", errors="replace"), planted) == [], file


def is_ours(file: Path) -> bool:
    """The database holds the payloads, and the file of secrets is the test's own."""
    return not file.name.startswith("jobs.db") and file.name != "secrets.json"
