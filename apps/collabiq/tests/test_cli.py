# SPDX-License-Identifier: Apache-2.0
"""The command line on the embedded defaults, and the README as documentation."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from apps.collabiq.cli import app
from apps.collabiq.retry_config import GMAIL_RETRY_CONFIG, INFISICAL_RETRY_CONFIG, breaker_for
from apps.collabiq.settings import Settings
from apps.collabiq.tests.driving import mail, write_mailbox
from apps.collabiq.tests.services import Gmail, Infisical, Notion
from redrive import ConfigurationError
from redrive.cli.app import app as redrive
from redrive.testing import VirtualClock

ROOT = Path(__file__).parents[3]
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings that the command line reads, too."""
    monkeypatch.setenv("COLLABIQ_FOLDER", settings.folder)
    monkeypatch.setenv("COLLABIQ_MAILBOX", settings.mailbox)
    monkeypatch.setenv("COLLABIQ_ENV_FILE", settings.env_file)
    return settings


def collabiq(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_demonstration_finds_three_and_loses_none() -> None:
    result = collabiq("demo")

    assert result.exit_code == 0, result.output
    shown = README.split("```text\n")[1].split("```")[0].splitlines()
    assert result.output.splitlines()[: len(shown)] == shown
    assert "failed: dlq_" in result.output


def test_the_defaults_need_no_client_library() -> None:
    missing = "import sys; sys.modules.update(dict.fromkeys(['google', 'googleapiclient', 'httplib2', 'httpx', 'httpx2', 'notion_client']))"
    start = f"{missing}; from apps.collabiq.cli import app; app(['demo'])"

    done = subprocess.run(
        [sys.executable, "-c", start], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "3 done, 1 dead letters" in done.stdout


@pytest.mark.req("CQ-5.1", "CQ-2.2")
def test_a_run_reads_what_is_new_and_keeps_what_failed(told: Settings) -> None:
    write_mailbox(told, [mail("One"), b"\n\n" + bytes(range(128, 256)), mail("Two")])

    first, second = collabiq("run"), collabiq("run")

    assert (first.exit_code, second.exit_code) == (1, 0)
    assert (
        first.output
        == "3 mails: 3 new, 0 known, 0 among the dead letters. Of the new ones 2 done, 1 added to the dead letters.\n"
    )
    assert (
        second.output
        == "3 mails: 0 new, 2 known, 1 among the dead letters. Of the new ones 0 done, 0 added to the dead letters.\n"
    )
    listed = collabiq("dlq", "list").output
    (dlq_id, status, operation, _) = listed.split()
    assert (status, operation) == ("pending", "gmail_fetch")
    shown = json.loads(collabiq("dlq", "show", dlq_id).output)
    assert shown["error_details"]["error_message"] == "the text of the mail is not readable"
    (command,) = re.findall(r"`redrive (dlq [^`]+)`", README)
    groups = CliRunner().invoke(
        redrive, command.replace("data/collabiq.db", str(told.database)).split(), env={"COLUMNS": "250"}
    )
    assert groups.exit_code == 0
    assert "MAIL_UNREADABLE" in groups.output


@pytest.mark.req("CQ-2.2")
def test_a_dead_letter_is_replayed_once(
    told: Settings, monkeypatch: pytest.MonkeyPatch, notion: Notion
) -> None:
    for name, value in {
        "SINK": "notion",
        "NOTION_URL": notion.url,
        "NOTION_DATA_SOURCE": told.notion_data_source,
    }.items():
        monkeypatch.setenv(f"COLLABIQ_{name}", value)
    write_mailbox(told, [mail("One"), mail("Two")])
    notion.only = "POST /v1/pages"
    notion.forever = 400
    assert collabiq("run").exit_code == 1
    first, second = [line.split()[0] for line in collabiq("dlq", "list").output.splitlines()]
    notion.forever = None

    one, rest = (
        collabiq("dlq", "replay", first),
        collabiq("dlq", "replay", "--all", "--operation", "notion_write"),
    )
    again, nothing = collabiq("dlq", "replay", first), collabiq("dlq", "replay", "--all")

    assert (one.exit_code, one.output) == (0, f"{first}  completed\n")
    assert (rest.exit_code, rest.output) == (0, f"{second}  completed\n")
    assert again.exit_code == 2
    assert "was replayed or closed before" in again.output
    assert (nothing.exit_code, nothing.output) == (0, "")
    assert json.loads((told.root / "dlq" / ".processed_ids.json").read_text()) == sorted([first, second])
    assert len(notion.pages) == 2


@pytest.mark.parametrize("command", [["dlq", "show", "dlq_x"], ["dlq", "replay", "dlq_x"]])
def test_what_is_not_there_is_refused_by_name(told: Settings, command: list[str]) -> None:
    write_mailbox(told, [])

    result = collabiq(*command)

    assert result.exit_code == 2
    assert "dlq_x" in result.output
    assert "collabiq dlq list" in result.output


@pytest.mark.req("CQ-2.1", "CQ-2.2")
def test_a_replay_that_fails_again_leaves_a_new_entry_and_the_old_one_is_refused(
    told: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mailbox(told, [b"\n\n" + bytes(range(128, 256))])
    collabiq("run")
    old = collabiq("dlq", "list").output.split()[0]

    failed, again = collabiq("dlq", "replay", old), collabiq("dlq", "replay", old)
    everything, none = collabiq("dlq", "replay", "--all"), collabiq("dlq", "replay")

    assert (failed.exit_code, failed.output) == (1, f"{old}  failed\n")
    assert again.exit_code == 2
    assert "Its successor is dlq_" in again.output
    assert everything.exit_code == 1
    assert len(everything.output.splitlines()) == 1
    assert [line.split()[1] for line in collabiq("dlq", "list").output.splitlines()] == ["failed"] * 3
    assert none.exit_code == 2
    assert not (told.root / "dlq" / ".processed_ids.json").exists()


def test_a_source_that_cannot_be_listed_is_told_and_written_down(
    told: Settings, monkeypatch: pytest.MonkeyPatch, gmail: Gmail, clock: VirtualClock
) -> None:
    monkeypatch.setenv("COLLABIQ_SOURCE", "gmail")
    monkeypatch.setenv("COLLABIQ_GMAIL_URL", gmail.url)
    gmail.forever = 503

    result = collabiq("run")

    assert result.exit_code == 2
    assert "the mail could not be listed" in result.output
    assert f"See {told.root}/logs" in result.output
    assert len(gmail.asked) == 3
    (path,) = told.root.glob("logs/ERROR/error_*_system.json")
    assert json.loads(path.read_text())["http_status"] == 503


@pytest.mark.req("CQ-5.1", "CQ-1.1")
def test_a_listing_that_succeeds_after_a_failure_leaves_a_record(
    told: Settings, monkeypatch: pytest.MonkeyPatch, gmail: Gmail, clock: VirtualClock
) -> None:
    monkeypatch.setenv("COLLABIQ_SOURCE", "gmail")
    monkeypatch.setenv("COLLABIQ_GMAIL_URL", gmail.url)
    gmail.faults.append(503)

    result = collabiq("run")

    assert result.exit_code == 0, result.output
    (path,) = told.root.glob("logs/*/*.json")
    record = json.loads(path.read_text())
    assert (record["severity"], record["category"], record["http_status"]) == ("WARNING", "TRANSIENT", 503)
    assert record["context"]["operation"] == "gmail_fetch"
    assert "sources.py" in record["stack_trace"]


@pytest.mark.req("CQ-4.1", decision="D-3")
def test_a_service_that_cannot_be_listed_is_left_alone_by_the_next_command(
    told: Settings, monkeypatch: pytest.MonkeyPatch, gmail: Gmail, clock: VirtualClock
) -> None:
    monkeypatch.setenv("COLLABIQ_SOURCE", "gmail")
    monkeypatch.setenv("COLLABIQ_GMAIL_URL", gmail.url)
    gmail.forever = 503

    results = [collabiq("run") for _ in range(3)]

    assert [each.exit_code for each in results] == [2, 2, 2]
    assert len(gmail.asked) == 5  # three, then two and a refusal, then a refusal
    assert "refused" in results[2].output
    lines = [path.read_text().splitlines() for path in told.root.glob("logs/ERROR/*.json")]
    assert "CircuitBreakerOpen" in {json.loads(line)["error_type"] for each in lines for line in each}
    clock.advance(60)
    gmail.forever = None
    assert collabiq("run").exit_code == 0


def test_the_doctor_says_how_things_stand(told: Settings) -> None:
    without = collabiq("doctor")
    write_mailbox(told, [mail("One")])
    collabiq("run")
    after = collabiq("doctor")

    assert without.exit_code == 1
    assert "COLLABIQ_MAILBOX" in without.output
    assert after.exit_code == 0
    assert "keys: no keys are needed" in after.output
    assert "jobs: {'complete': 1}; dead letters: 0" in after.output
    assert "pages: 1" in after.output


def test_the_doctor_tells_of_the_fallback(
    told: Settings, monkeypatch: pytest.MonkeyPatch, infisical: Infisical
) -> None:
    write_mailbox(told, [])
    infisical.forever = 503
    for name, value in {
        "SINK": "notion",
        "INFISICAL_URL": infisical.url,
        "INFISICAL_CLIENT_ID": "machine",
    }.items():
        monkeypatch.setenv(f"COLLABIQ_{name}", value)

    result = collabiq("doctor")

    assert result.exit_code == 0
    assert "keys: .env, because Infisical did not return them" in result.output


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="COLLABIQ_SOURCE must be one of local, imap, gmail, got 'fax'"
    ):
        Settings.from_environment({"COLLABIQ_SOURCE": "fax"})
    with pytest.raises(ConfigurationError, match="COLLABIQ_IMAP_PORT") as refused:
        Settings.from_environment({"COLLABIQ_IMAP_PORT": "imaps"})
    assert "imaps" in str(refused.value)

    made = Settings.from_environment(
        {"COLLABIQ_IMAP_PORT": "143", "COLLABIQ_IMAP_TLS": "false", "COLLABIQ_LEASE": "2"}
    )
    assert (made.imap_port, made.imap_tls, made.lease) == (143, False, 2.0)


@pytest.mark.parametrize(
    ("variable", "value", "nearest"),
    [
        ("COLLABIQ_SORCE", "gmail", "Did you mean COLLABIQ_SOURCE?"),
        ("COLLABIQ_MAIL_BOX", "x", "Did you mean COLLABIQ_MAILBOX?"),
        ("COLLABIQ_SOURCE", "gmial", "Did you mean gmail?"),
        ("COLLABIQ_INFISICAL_SECRET", "s3cret", "Did you mean COLLABIQ_INFISICAL_CLIENT_SECRET?"),
        ("COLLABIQ_X", "1", "README.md lists the settings."),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_name(
    told: Settings, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, nearest: str
) -> None:
    monkeypatch.setenv(variable, value)

    for command in (["run"], ["doctor"], ["dlq", "list"]):
        result = collabiq(*command)
        assert result.exit_code == 2
        assert variable in result.output
        assert nearest in result.output


@pytest.mark.parametrize(
    "content", [b"just some notes\n", b"\xff\xfeF\x00r\x00", b"\n\nSubject: x\n\nhello\n"]
)
def test_a_file_that_is_no_mbox_is_refused(told: Settings, content: bytes) -> None:
    Path(told.mailbox).write_bytes(content)

    ran, checked = collabiq("run"), collabiq("doctor")

    assert (ran.exit_code, checked.exit_code) == (2, 1)
    assert all("is not an mbox file" in each.output for each in (ran, checked))


def test_a_folder_that_is_no_maildir_is_refused_and_an_empty_mailbox_is_not(
    told: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.setenv("COLLABIQ_MAILBOX", str(tmp_path / "photos"))

    ran, checked = collabiq("run"), collabiq("doctor")

    assert (ran.exit_code, checked.exit_code) == (2, 1)
    assert all("not a Maildir" in each.output for each in (ran, checked))
    (tmp_path / "empty.mbox").touch()
    monkeypatch.setenv("COLLABIQ_MAILBOX", str(tmp_path / "empty.mbox"))
    assert collabiq("run").exit_code == 0


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_an_env_file_in_another_encoding_is_read_or_refused_in_a_sentence(
    told: Settings, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    write_mailbox(told, [])
    monkeypatch.setenv("COLLABIQ_SINK", "notion")
    Path(told.env_file).write_text("NOTION_TOKEN=ntn_made_up\n", encoding=encoding)

    result = collabiq("run")

    assert result.exit_code == (2 if encoding == "utf-16" else 0), result.output
    assert ("not UTF-8" in result.output) == (encoding == "utf-16")


def test_a_folder_that_cannot_be_made_is_refused(told: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLABIQ_FOLDER", told.env_file)

    result = collabiq("dlq", "list")

    assert result.exit_code == 2
    assert "COLLABIQ_FOLDER cannot be made" in result.output


@pytest.mark.parametrize(("level", "is_logged"), [("warning", True), ("error", False)])
def test_a_log_level_is_obeyed_or_refused(told: Settings, level: str, is_logged: bool) -> None:
    (told.root / "dlq").mkdir()
    (told.root / "dlq" / ".processed_ids.json").write_text("[")

    loud = collabiq("--log-level", "loud", "dlq", "list")
    start = [sys.executable, "-m", "apps.collabiq", "--log-level", level, "dlq", "list"]
    done = subprocess.run(start, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert loud.exit_code == 2
    assert all(f"'{word}'" in loud.output for word in ("loud", "debug", "info", "warning", "error"))
    assert done.returncode == 0
    assert ("WARNING collabiq.files:" in done.stderr) == is_logged


def test_the_readme_names_every_setting_and_command() -> None:
    named = set(re.findall(r"`(?:COLLABIQ)?_([A-Z_]+)`", README)) | set(
        re.findall(r"COLLABIQ_([A-Z_]+)", README)
    )
    commands = set(re.findall(r"python -m apps\.collabiq (\w+(?: \w+)?)", README))

    assert {each.name.upper() for each in fields(Settings)} <= named
    for command in commands:
        words = [word for word in command.split() if word.islower()]
        assert collabiq(*words, "--help").exit_code == 0, command


@pytest.mark.req("CQ-3.2", "CQ-4.1")
def test_the_readme_quotes_the_policies_as_they_are() -> None:
    rows = [line for line in README.splitlines() if line.startswith(("| Gmail, Gemini", "| Infisical | 2"))]
    for row, config, breaker in zip(
        rows,
        (GMAIL_RETRY_CONFIG, INFISICAL_RETRY_CONFIG),
        (breaker_for("gmail"), breaker_for("infisical")),
        strict=True,
    ):
        assert f"| {config.max_attempts} |" in row
        assert f"up to {config.jitter_max:g} s" in row
        assert f"after {breaker.consecutive}" in row
        assert f"for {breaker.open_for:g} s" in row
        assert f"after {breaker.close_after}" in row
