# SPDX-License-Identifier: Apache-2.0
"""Secrets planted wherever a stage can say one are searched for in every column, every log line and every answer."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

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
    ["dlq", "export"],
    ["doctor"],
]

ABOUT_ONE = {"job": ("show", "explain", "timeline"), "dlq": ("show",)}
"""Asked about some jobs, and about some letters."""


@dataclass(frozen=True)
class Planted:
    """The secrets by where they come from, and what is searched for."""

    secrets: dict[str, str]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Match a secret or a part of one, plain and as it stands in addresses; the group says which."""
        return re.compile("|".join(f"(?P<{name}>{_forms(secret)})" for name, secret in self.secrets.items()))

    def found_in(self, text: str) -> set[str]:
        return {str(found.lastgroup) for found in self.pattern.finditer(text)}


def _forms(secret: str) -> str:
    parts = [secret[at : at + PIECE] for at in range(0, len(secret) - PIECE + 1, PIECE // 2)]
    return "|".join({re.escape(form) for part in parts for form in (part, quote(part, safe=""))})


def sayings(own: str, *, is_short: bool) -> list[Said]:
    """Every place with every source; what waits for a heartbeat would block a loop or a process, and is left out there."""
    return [
        Said(place, source, own if source == "payload" else "")
        for place in PLACES
        for source in SOURCES
        if not (is_short and place == "as_progress")
    ]


def say_all(scene: Scene, planted: dict[str, str], patch: pytest.MonkeyPatch) -> str:
    """Let workers say every secret in every way, on a thread, on the loop and in a process; return their log."""
    (scene.here / "secrets.json").write_text(json.dumps(planted), encoding="utf-8")
    for pipeline in (leaky, leaky_process, leaky_loop):
        scene.submit(sayings(planted["payload"], is_short=pipeline is not leaky), pipeline)
    with patch.context() as context:
        context.setenv("SHOP_API_KEY", planted["environment"])
        context.setenv("SHOP_DB_PASSWORD", planted["password"])
        context.setenv("FAULTS_SECRETS", str(scene.here / "secrets.json"))
        names = ",".join(pipeline.name for pipeline in (leaky, leaky_process, leaky_loop))
        with Herd(scene, "--until-idle", "--verbose", pipelines=names, concurrency=80) as herd:
            assert herd.wait() == 0
    return herd.log()


def columns(db: sqlite3.Connection) -> list[tuple[str, str]]:
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = [(table, row[1]) for table in tables for row in db.execute(f"PRAGMA table_info('{table}')")]
    assert set(found) > VALUES
    return [pair for pair in found if pair not in VALUES]


def leaks_in_columns(scene: Scene, planted: Planted) -> set[str]:
    leaks: set[str] = set()
    with scene.reading() as db:
        for table, column in columns(db):
            for (value,) in db.execute(f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'):
                text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
                leaks.update(f"{table}.{column}: {source}: {text}" for source in planted.found_in(text))
    return leaks


def leaks_in_answers(scene: Scene, planted: Planted) -> set[str]:
    """Ask the command line."""
    runner = CliRunner()
    # One job per place is enough here: the columns they are made from were searched for all.
    jobs = [str(row[0]) for row in scene.read("SELECT id FROM jobs WHERE pipeline = 'leaky'")][
        :: len(SOURCES) + 1
    ]
    letters = [str(row[0]) for row in scene.read("SELECT id FROM dead_letters")][:: len(SOURCES) + 1]
    commands = [[*command, *form] for command in COMMANDS for form in ([], ["-o", "json"])]
    for kind, ids in (("job", jobs), ("dlq", letters)):
        for verb in ABOUT_ONE[kind]:
            commands += [[kind, verb, each, "-o", "json"] for each in ids]
            commands += [[kind, verb, each] for each in ids[:4]]
    answered: set[str] = set()
    leaks: set[str] = set()
    for words in commands:
        said = runner.invoke(
            app,
            [*words, "--database-url", str(scene.database)],
            env={"COLUMNS": "500", "NO_COLOR": "1"},
        )
        if said.exit_code == 0 and said.output:
            answered.add(" ".join(words[:2] if words[0] in {"job", "dlq"} else words[:1]))
        leaks.update(f"redrive {' '.join(words)}: {source}" for source in planted.found_in(said.output))
    asked = {" ".join(command[:2]) for command in COMMANDS if command[0] in {"job", "dlq"}}
    asked |= {f"{kind} {verb}" for kind, verbs in ABOUT_ONE.items() for verb in verbs}
    assert asked | {"stats", "events"} <= answered
    return leaks


def test_a_secret_said_anywhere_is_written_down_nowhere(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "environment": secrets.token_hex(16),
        "password": f"{secrets.token_hex(8)}+{secrets.token_hex(8)}=",
        "payload": f"order of {secrets.token_hex(12)}",
        "elsewhere": f"sk-proj-{secrets.token_hex(24)}",
    }
    log = say_all(scene, said, monkeypatch)
    planted = Planted(said)

    # First, that there was something to find.
    outcomes = {row[0] for row in scene.read("SELECT DISTINCT outcome FROM attempts")}
    assert {"ok", "retry", "hold", "dead", "cancelled"} <= outcomes
    assert scene.read("SELECT count(*) FROM letters WHERE message LIKE '%<payload:%'") != [(0,)]
    assert scene.read("SELECT count(*) FROM attempts WHERE notes IS NOT NULL") != [(0,)]
    assert scene.count("progress IS NOT NULL") == len(SOURCES)
    assert "hook on_dead of job" in log
    leaks = leaks_in_columns(scene, planted) | leaks_in_answers(scene, planted)
    leaks |= {f"log: {line}" for line in log.splitlines() if planted.found_in(line)}
    if leaks:
        pytest.fail("\n".join(sorted(leaks)[:20]), pytrace=False)
