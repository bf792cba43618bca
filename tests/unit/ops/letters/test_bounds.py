# SPDX-License-Identifier: Apache-2.0
"""What an import, an edit and a submission take at most: bounded before anything costs time or space."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from redrive import ConfigurationError, Context, Pipeline, Redrive, ReplayRules, RetryPolicy, connect, stage
from redrive.engine.pipeline import submission
from redrive.engine.replay.filter import LetterFilter
from redrive.engine.replay.rules import rules_of
from redrive.errors import SerializationError
from redrive.ops.audit import Actor, operations, operations_about
from redrive.ops.letters import imports, new_value
from redrive.ops.letters.edit import edit
from redrive.ops.letters.exports import export
from redrive.ops.letters.imports import import_letters
from redrive.ops.upkeep.backup import backup
from redrive.redaction.process import redact_start

ANN = Actor("ann", "a test")


@stage
def check(value: object) -> object:
    return value


@stage(retry=RetryPolicy(1))
def charge(value: object) -> object:
    raise KeyError


SHOP = Pipeline("shop", [check, charge], replay=ReplayRules(export="include"))


@pytest.fixture
def failed(tmp_path: Path) -> Generator[Redrive]:
    with connect(tmp_path / "shop.db") as rd:
        rd.submit(SHOP, {"list": [1, 2, 3]})
        rd.work([SHOP], until_idle=True)
        yield rd


@pytest.fixture
def there(tmp_path: Path) -> Generator[Redrive]:
    with connect(tmp_path / "there.db") as rd:
        yield rd


def line(rd: Redrive, **changes: Any) -> bytes:
    (text,) = export(rd.store, LetterFilter(), ANN, with_values=True)
    told = json.loads(text)
    for path, value in changes.items():
        place, name = path.split("__")
        told[place][name] = value
    return json.dumps(told).encode()


@pytest.mark.parametrize("name", ["key", "owner"])
@pytest.mark.parametrize("text", ["x" * 501, "a\0b"])
def test_names_are_bounded_wherever_they_come_from(
    failed: Redrive, there: Redrive, name: str, text: str
) -> None:
    imported = import_letters(there.store, [line(failed, **{f"job__{name}": text})], ANN)

    assert [number for number, _ in imported.refused] == [1]
    with pytest.raises(ConfigurationError, match="none of them NUL"):
        failed.submit(SHOP, 1, **{name: text})  # type: ignore[arg-type]


def test_a_payload_of_an_import_is_bounded_like_any_other(
    failed: Redrive, there: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "PAYLOAD_MAX", 100)

    imported = import_letters(there.store, [line(failed, values__payload="x" * 101)], ANN)

    assert imported.refused == [(1, "values.payload: it has 103 bytes; 100 is the most")]


def test_of_a_long_text_only_a_part_is_read(
    failed: Redrive, there: Redrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counting(text: str, *rest: Any, **more: Any) -> str:
        read.append(len(text))
        return redact_start(text, *rest, **more)

    monkeypatch.setattr(imports, "redact_start", counting)
    texts = {"letter__message": "m" * 3_000_000, "letter__last_stack": "s" * 3_000_000}
    context = {"letter__sanitized_context": {"note": "n" * 3_000_000}}

    imported = import_letters(there.store, [line(failed, **texts, **context)], ANN)

    assert imported.made == 1
    assert max(read) <= imports.READ_MAX


def test_a_value_that_is_too_large_is_no_edit(failed: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "PAYLOAD_MAX", 1_000)

    changes: list[dict[str, Any]] = [
        {"value": b'"' + b"x" * 1_000 + b'"'},
        {"function": lambda _: "x" * 1_000},
    ]
    for change in changes:
        with pytest.raises(SerializationError, match="the limit is 1000 bytes"):
            edit(failed.store, 1, ANN, part="payload", **change)


def test_copies_of_copies_are_bounded(failed: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-six operations would make a value of gigabytes."""
    monkeypatch.setattr(new_value, "PAYLOAD_MAX", 100_000)
    copies = [{"op": "copy", "from": "/list", "path": f"/list/{place % 3}"} for place in range(40)]

    with pytest.raises(ConfigurationError, match="copies more than"):
        edit(failed.store, 1, ANN, part="payload", patch=json.dumps(copies).encode())
    many = [{"op": "test", "path": "/list/0", "value": 1}] * (new_value.OPERATIONS_MAX + 1)
    with pytest.raises(ConfigurationError, match="1,000 is the most"):
        edit(failed.store, 1, ANN, part="payload", patch=json.dumps(many).encode())


def test_whoever_submits_with_a_pipeline_of_the_same_name_changes_no_rules(failed: Redrive) -> None:
    forged = Pipeline("shop", [check, charge], replay=ReplayRules(evidence="optional", owner_retry=True))

    failed.submit(forged, 1)

    assert rules_of(failed.store, "shop") == SHOP.replay


def test_a_job_enters_at_the_first_stage(failed: Redrive) -> None:
    with pytest.raises(ConfigurationError, match="must begin with the first stage, which is check"):
        failed.submit(Pipeline("shop", [charge]), 1)
    with pytest.raises(ConfigurationError, match="must begin with the first stage, which is check"):
        failed.runs.open(Pipeline("shop", [charge]), [1])
    with pytest.raises(ConfigurationError, match="must begin with the first stage, which is check"):
        failed.schedules.add("hourly", Pipeline("shop", [charge]), 1, cron="0 * * * *")
    assert failed.schedules.list() == []


def test_a_job_of_a_stage_enters_at_the_first_stage(failed: Redrive) -> None:
    @stage
    def pass_by(value: object, ctx: Context) -> object:
        ctx.submit(Pipeline("shop", [charge]), value)
        return value

    parents = Pipeline("parents", [pass_by])
    before = len(failed.jobs.list(pipeline="shop"))

    job = failed.submit(parents, 1)
    failed.work([parents], until_idle=True)

    assert job.status == "failed"
    message = job.facts.error_message
    assert "must begin with the stage that is the first one for the workers" in str(message)
    assert len(failed.jobs.list(pipeline="shop")) == before


def test_a_backup_with_the_name_of_a_letter_is_not_in_the_log_of_the_letter(
    failed: Redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    backup(failed.store, Path("letter 1"), ANN)

    assert [each.subject for each in operations(failed.store)] == ["file letter 1"]
    assert operations_about(failed.store, 1, [failed.letters.show(1).letter]) == []
