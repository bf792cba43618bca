# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the command line's tests."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest

from tests.databases import Address, Schemas
from tests.e2e.shell import FLOWS, ORDERS, Shell


@pytest.fixture
def shell(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dialect: str,
    address: Address,
) -> Generator[Shell]:
    """A shell in an empty folder with `flows.py`; commands that name no database use a file there, or one on a server."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    loaded = set(sys.modules)
    levels = {logging.getLogger(name): 0 for name in ("redrive", "flows", "talking", "renamed")}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("REDRIVE_DATABASE_URL", raising=False)
    if dialect == "postgres":
        monkeypatch.setenv("REDRIVE_DATABASE_URL", address("shell"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "flows.py").write_text(FLOWS, encoding="utf-8")
    opened = Shell(tmp_path, monkeypatch, capsys)
    yield opened
    for process in opened.started:
        process.kill()
        process.communicate(timeout=60)
    for name in [name for name in sys.modules.keys() - loaded if _is_from(sys.modules[name], tmp_path)]:
        del sys.modules[name]
    root.handlers[:], root.level = before
    for logger, level in levels.items():
        logger.setLevel(level)


def _is_from(module: object, folder: Path) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(str(folder))


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """Two failed jobs of `orders.py`, and so two letters of one group."""
    (shell.folder / "orders.py").write_text(ORDERS, encoding="utf-8")
    shell.write("items.jsonl", *[json.dumps({"amount": 0, "email": "ann@example.com"})] * 2)
    shell("submit", "orders:shop", "--file", "items.jsonl")
    shell("worker", "orders:shop", "--until-idle", "--concurrency", "1")
    return shell


@pytest.fixture
def fresh(schemas: Schemas) -> Generator[str]:
    """The address of a schema that does not exist."""
    name = schemas.emptied("gone")
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"DROP SCHEMA {name} CASCADE")
    schemas.forget(name)
    yield schemas.named(name)
    with psycopg.connect(schemas.server, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
