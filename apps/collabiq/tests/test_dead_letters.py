# SPDX-License-Identifier: Apache-2.0
"""Dead letters on the command line, and their files, which are only a copy of the database."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from apps.collabiq.cli import app
from apps.collabiq.files import PROCESSED
from apps.collabiq.settings import Settings
from apps.collabiq.tests.driving import mail, write_mailbox
from apps.collabiq.tests.services import Infisical, Notion


@pytest.fixture
def by_notion(settings: Settings, monkeypatch: pytest.MonkeyPatch, notion: Notion) -> Settings:
    """Settings in the environment that write to Notion, which refuses every page at first; and two mails."""
    given = {
        "FOLDER": settings.folder,
        "MAILBOX": settings.mailbox,
        "ENV_FILE": settings.env_file,
        "CONCURRENCY": "1",
        "SINK": "notion",
        "NOTION_URL": notion.url,
        "NOTION_DATA_SOURCE": settings.notion_data_source,
    }
    for name, value in given.items():
        monkeypatch.setenv(f"COLLABIQ_{name}", value)
    write_mailbox(settings, [mail("One"), mail("Two")])
    notion.only = "POST /v1/pages"
    notion.forever = 400
    return settings


def collabiq(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def ids(*arguments: str) -> list[str]:
    return [line.split()[0] for line in collabiq("dlq", "list", *arguments).output.splitlines()]


def files(settings: Settings) -> list[Path]:
    return sorted((settings.root / "dlq").glob("*/*.json"))


@pytest.mark.req("CQ-2.2")
@pytest.mark.parametrize("content", [None, b"", b"[", b'{"a": 1}', b"\xff"])
def test_the_list_of_processed_ids_is_rebuilt_from_the_database_and_that_is_reported_once(
    by_notion: Settings, notion: Notion, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    collabiq("run")
    first, second = ids()
    notion.forever = None
    assert collabiq("dlq", "replay", first).exit_code == 0
    path = by_notion.root / "dlq" / PROCESSED
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    with caplog.at_level(logging.WARNING, "collabiq.files"):
        results = [collabiq("dlq", "list"), collabiq("doctor"), collabiq("run")]

    assert [each.exit_code for each in results] == [0, 0, 0]
    assert json.loads(path.read_text()) == [first]
    assert [each.getMessage().endswith("with 1 ids") for each in caplog.records] == [True]
    assert collabiq("dlq", "replay", first).exit_code == 2
    assert collabiq("dlq", "replay", second).exit_code == 0


@pytest.mark.req("CQ-2.2")
@pytest.mark.parametrize("content", [None, b"", b'{"dlq_id": "dlq_', b"{}"])
def test_a_file_that_was_lost_or_damaged_hides_no_dead_letter(
    by_notion: Settings, notion: Notion, content: bytes | None
) -> None:
    collabiq("run")
    before = ids()
    whole = [path.read_bytes() for path in files(by_notion)]
    for path in files(by_notion):
        path.unlink()
        if content is not None:
            path.write_bytes(content)

    assert ids() == before
    assert [path.read_bytes() for path in files(by_notion)] == whole
    assert "dead letters: 2" in collabiq("doctor").output
    notion.forever = None
    assert collabiq("dlq", "replay", "--all").output.count("completed") == 2


def test_files_that_cannot_be_written_stop_no_command(
    by_notion: Settings, notion: Notion, caplog: pytest.LogCaptureFixture
) -> None:
    collabiq("run")
    listed = ids()
    for path in files(by_notion):
        path.unlink()
        path.mkdir()

    with caplog.at_level(logging.WARNING, "collabiq.files"):
        assert ids() == listed
        notion.forever = None
        assert collabiq("dlq", "replay", "--all").output.count("completed") == 2

    assert "cannot write" in caplog.text


def test_after_a_replay_the_mail_is_known_and_no_dead_letter_any_more(
    by_notion: Settings, notion: Notion
) -> None:
    collabiq("run")
    notion.forever = None
    collabiq("dlq", "replay", ids()[0])
    collabiq("dlq", "complete", ids()[1], "--note", "spam")

    assert collabiq("run").output.startswith("2 mails: 0 new, 2 known, 0 among the dead letters.")
    assert "dead letters: 0" in collabiq("doctor").output


@pytest.mark.req("CQ-2.1")
def test_dead_letters_are_listed_by_operation_and_status_as_text_or_json(
    by_notion: Settings, notion: Notion
) -> None:
    collabiq("run")
    first, second = ids()
    notion.forever = None
    collabiq("dlq", "replay", first)

    assert ids("--status", "completed") == [first]
    assert ids("--operation", "notion_write", "--status", "pending") == [second]
    assert ids("--operation", "gmail_fetch") == []
    (listed,) = json.loads(collabiq("dlq", "list", "--status", "pending", "-o", "json").output)
    assert (listed["dlq_id"], listed["original_payload"]["title"]) == (second, "Two")
    assert json.loads(collabiq("dlq", "list", "--operation", "gmail_fetch", "-o", "json").output) == []
    refused = collabiq("dlq", "list", "--status", "odd")
    assert refused.exit_code == 2
    assert "pending" in refused.output


@pytest.mark.req("CQ-2.1", "CQ-2.2")
def test_a_dead_letter_is_closed_by_hand_with_a_note_and_never_replayed(
    by_notion: Settings, notion: Notion
) -> None:
    collabiq("run")
    first, second = ids()

    closed = collabiq("dlq", "complete", first, "--note", "a newsletter")

    assert (closed.exit_code, closed.output) == (0, f"{first}  completed\n")
    shown = json.loads(collabiq("dlq", "show", first).output)
    assert (shown["status"], shown["processed"], shown["replayed_at"]) == ("completed", True, None)
    assert shown["error_details"]["note"] == "a newsletter"
    assert collabiq("dlq", "complete", first, "--note", "again").exit_code == 2
    assert collabiq("dlq", "replay", first).exit_code == 2
    assert collabiq("dlq", "complete", second).exit_code == 2
    near = collabiq("dlq", "complete", second[:-1], "--note", "x")
    assert near.exit_code == 2
    assert f"Did you mean {second}?" in near.output


def test_a_replay_takes_at_most_so_many_of_the_oldest(by_notion: Settings, notion: Notion) -> None:
    collabiq("run")
    first, second = ids()
    notion.forever = None

    assert collabiq("dlq", "replay", "--all", "--max", "1").output == f"{first}  completed\n"
    assert ids("--status", "pending") == [second]
    assert collabiq("dlq", "replay", second, "--max", "1").exit_code == 2
    assert collabiq("dlq", "replay", second, "--all").exit_code == 2


@pytest.mark.req("CQ-2.1", decision="D-10")
def test_an_entry_whose_replay_failed_has_that_failure_and_names_its_successor(
    by_notion: Settings, notion: Notion
) -> None:
    collabiq("run")
    first, _ = ids()
    notion.forever = 404
    assert collabiq("dlq", "replay", first).output == f"{first}  failed\n"

    (successor,) = [each for each in ids() if each.endswith(first[-16:]) and each != first]
    shown = json.loads(collabiq("dlq", "show", first).output)
    assert shown["error_details"]["successor"] == successor
    assert shown["error_details"]["replay_failure"]["error_type"] == "notion_client.errors.APIResponseError"
    assert shown["original_payload"]["title"] == "One"
    assert ids("--status", "failed") == [first]
    after = json.loads(collabiq("dlq", "show", successor).output)
    assert (after["status"], "successor" in after["error_details"]) == ("pending", False)


@pytest.mark.req("CQ-2.2", "CQ-4.1", decision="D-3")
def test_the_breaker_of_infisical_outlives_a_command_and_its_dead_letter_can_be_replayed(
    by_notion: Settings, monkeypatch: pytest.MonkeyPatch, notion: Notion, infisical: Infisical
) -> None:
    Path(by_notion.env_file).write_text("")
    monkeypatch.setenv("COLLABIQ_INFISICAL_URL", infisical.url)
    monkeypatch.setenv("COLLABIQ_INFISICAL_CLIENT_ID", "machine")
    infisical.secrets = {"NOTION_TOKEN": "ntn_from_infisical"}
    infisical.faults.extend([503, 503])

    assert [collabiq("doctor").exit_code for _ in range(2)] == [1, 1]
    (letter,) = ids()
    replayed = collabiq("dlq", "replay", letter)

    assert (replayed.exit_code, replayed.output) == (0, f"{letter}  completed\n")
    infisical.forever = 503
    asked = len(infisical.asked)
    assert [collabiq("doctor").exit_code for _ in range(4)] == [1] * 4
    assert len(infisical.asked) == asked + 3
    assert len(ids("--status", "pending")) == 1
    (again,) = ids("--status", "pending")
    assert collabiq("dlq", "complete", again, "--note", "known").exit_code == 0
