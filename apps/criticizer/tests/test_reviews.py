# SPDX-License-Identifier: Apache-2.0
"""Which parts of an answer are believed, how a diff is read, and what the built-in reviewer finds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from apps.criticizer.change import Change, parse_patch
from apps.criticizer.review import INSTRUCTIONS, VERSION, Review, parse_answer, prompt_of
from apps.criticizer.settings import Settings
from apps.criticizer.tests.scenes import (
    FINDING,
    KEY,
    PATCH,
    answer,
    git,
    last_change,
    make_repository,
    order,
    run,
)
from apps.criticizer.tests.servers import Mailbox, Upstream
from redrive import ConfigurationError

CHANGE = Change("Review", ("terminal",), parse_patch(PATCH))


def test_the_model_reviews_and_the_webhook_is_told(upstream: Upstream, settings: Settings) -> None:
    result = run(order(upstream), settings)

    (asked,) = upstream.asked["/v1/chat/completions"]
    (told,) = upstream.asked["/hook"]
    assert result.status == "complete"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert told.headers["idempotency-key"].startswith("criticizer:")
    assert told.headers["idempotency-key"].endswith("-1:notify")
    assert json.loads(told.body)["findings"] == [FINDING]
    assert result.notes["request_id"] == "req_42"


def test_the_version_stands_in_the_prompt_and_in_the_answer() -> None:
    assert VERSION in INSTRUCTIONS
    assert parse_answer(answer(FINDING), CHANGE, reviewer="m").version == VERSION


def test_findings_that_cannot_be_believed_are_dropped_one_by_one_with_the_reason() -> None:
    bad = [
        {**FINDING, "severity": "fatal"},
        {**FINDING, "line": "three"},
        {**FINDING, "file": "../../etc/passwd"},
        {**FINDING, "line": 1},
        {**FINDING, "confidence": 0.9},
        {name: value for name, value in FINDING.items() if name != "line"},
        "prices.py is bad",
    ]

    review = parse_answer(answer(*bad, FINDING), CHANGE, reviewer="m")

    assert [each.message for each in review.findings] == [FINDING["message"]]
    assert len(review.dropped) == len(bad)
    assert "`$.severity`" in review.dropped[0]
    assert review.dropped[2:4] == (
        "finding 3: its file is not part of the change",
        "finding 4: line 1 is not new",
    )
    assert review.dropped[5] == "finding 6: Object missing required field `line`"


def test_a_number_that_is_written_as_a_text_is_read_as_a_number() -> None:
    review = parse_answer(answer({**FINDING, "line": "3"}), CHANGE, reviewer="m")

    assert [each.line for each in review.findings] == [3]
    assert review.dropped == ()


def test_what_the_model_is_shown_keeps_its_numbers_when_lines_are_redacted() -> None:
    pem = [
        "-----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
        "-----END PRIVATE KEY-----",
    ]
    added = "".join(f"+{line}\n" for line in (*pem, "last = 1"))
    change = Change("t", ("terminal",), parse_patch(f"--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,4 @@\n{added}"))

    shown = prompt_of(change)

    assert "MIIEvQ" not in shown
    assert "     4 +last = 1" in shown


def test_a_diff_is_read_line_by_line() -> None:
    text = (
        "From: somebody\nSubject: [PATCH] words\n\n--- a/old.txt\n+++ b/new.txt\n@@ -1,3 +1,3 @@ def x\n"
        "-first\n+++ not a header\n same\n \n"
        "\\ No newline at end of file\n@@ -20 +20,2 @@\n+twenty\n kept\n"
        '--- /dev/null\n+++ "b/with \\"quotes\\" and \\303\\244.py"\n@@ -0,0 +1 @@\n+x = 1\n'
        "--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n-- \n2.39.5\n"
    )

    first, second = parse_patch(text)

    assert (first.path, set(first.added), first.content) == ("new.txt", {1, 20}, None)
    assert first.lines[1] == (1, "+", "++ not a header")
    assert (second.path, set(second.added), second.content) == ('with "quotes" and ä.py', {1}, "x = 1\n")


@pytest.mark.parametrize(
    "text", ["", "no diff", "+++ b/x\n@@ -1,9 +1,9 @@\n+a", "@@ -1 +1 @@\n+a\n", "--- a\n+++ \n@@ @@\n"]
)
def test_what_is_no_diff_or_half_of_one_does_no_harm(text: str) -> None:
    assert all(file.path == "x" for file in parse_patch(text))


def test_without_a_key_the_linter_reviews_the_new_lines_alone(repo: Path) -> None:
    result = run(last_change(repo), Settings())

    assert isinstance(result.value, Review)
    found = [(each.file, each.line, each.severity, each.category) for each in result.value.findings]
    assert result.value.reviewer == "local"
    assert found == [("prices.py", 1, "error", "bug"), ("prices.py", 5, "warning", "security")]


def test_old_lines_are_not_linted_and_settings_of_the_repository_are_not_read(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "r", "import os\n", "import os\nimport sys\n")
    (repo / "ruff.toml").write_text('lint.ignore = ["F401"]\n', encoding="utf-8")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--amend", "--no-edit")

    result = run(last_change(repo), Settings())

    assert isinstance(result.value, Review)
    assert [each.line for each in result.value.findings] == [2]


def test_a_syntax_error_is_a_finding(tmp_path: Path) -> None:
    result = run(last_change(make_repository(tmp_path / "r", "x = 1\n", "x = (\n")), Settings())

    assert isinstance(result.value, Review)
    assert {(each.severity, each.category) for each in result.value.findings} == {("error", "bug")}


def test_the_terminal_is_told_without_anything_that_could_steer_it(
    upstream: Upstream, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    job = order(upstream, "terminal")
    upstream.say(answer({**FINDING, "message": "red \x1b[31m alert\r\nforged: line"}, {"line": 1}))
    run(job, settings)

    assert capsys.readouterr().out.splitlines() == [
        "Review of /change.patch: 1 finding (gpt-4o-mini)",
        "prices.py:3: error [security] red  [31m alert  forged: line",
        "dropped finding 2: Object missing required field `severity`",
    ]


def test_a_text_names_the_first_findings_that_were_dropped(
    upstream: Upstream, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    job = order(upstream, "terminal")
    upstream.say(answer(*({**FINDING, "line": line} for line in range(10, 20))))
    run(job, settings)

    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "dropped finding 1: line 10 is not new"
    assert (len(lines), lines[-1]) == (7, "dropped 5 more findings")


def test_several_recipients_are_all_notified_each_under_its_own_key(
    upstream: Upstream, settings: Settings, mailbox: Mailbox, capsys: pytest.CaptureFixture[str]
) -> None:
    everybody = ("terminal", "smtp:a@example.org", "webhook", "smtp:b@example.org", "smtp:a@example.org")
    result = run(order(upstream, *everybody), settings)

    assert [mail["To"] for mail in mailbox.messages] == ["a@example.org", "b@example.org"]
    assert len({mail["Message-ID"] for mail in mailbox.messages}) == 2
    assert upstream.calls("/hook") == 1
    assert "1 finding" in capsys.readouterr().out
    assert result.status == "complete"


def test_a_recipient_that_fails_keeps_the_review_from_no_other(
    upstream: Upstream, settings: Settings, mailbox: Mailbox
) -> None:
    upstream.fail("/hook", 404)
    result = run(order(upstream, "webhook", "smtp:a@example.org"), settings)

    assert result.letter is not None
    assert result.letter.code == "DESTINATION_GONE"
    assert [mail["To"] for mail in mailbox.messages] == ["a@example.org"]


@pytest.mark.parametrize("recipient", ["pigeon", "smtp:", "webhook:nonsense", "webhook:", "terminal:1", ""])
def test_a_recipient_that_cannot_be_one_is_refused_before_the_model_is_asked(
    upstream: Upstream, settings: Settings, recipient: str
) -> None:
    result = run(order(upstream, "terminal", recipient), settings)

    assert result.letter is not None
    assert (result.letter.code, result.attempts[-1].stage) == ("SCHEMA_INVALID", "fetch")
    assert (upstream.calls("/change.patch"), upstream.calls("/v1/chat/completions")) == (0, 0)


def test_a_mail_holds_the_review_and_the_key(
    upstream: Upstream, settings: Settings, mailbox: Mailbox
) -> None:
    run(order(upstream, "smtp:team@example.org"), settings)

    (mail,) = mailbox.messages
    assert mail["To"] == "team@example.org"
    assert mail["Idempotency-Key"].endswith("-1:notify")
    assert mail["Subject"] == "Review of /change.patch: 1 finding (gpt-4o-mini)"
    assert "prices.py:3: error" in str(mail.get_payload())


@pytest.mark.parametrize("address", ["x@y.org\nBcc: all@y.org", "x@y.org\r\n\r\nbody"])
def test_a_mail_address_cannot_add_headers(
    upstream: Upstream, settings: Settings, mailbox: Mailbox, address: str
) -> None:
    result = run(order(upstream, f"smtp:{address}"), settings)

    assert result.letter is not None
    assert (result.letter.code, mailbox.messages) == ("SCHEMA_INVALID", [])


def test_settings_come_from_the_environment_and_show_no_secret() -> None:
    read = Settings.read(
        {
            "OPENAI_API_KEY": "sk-one-0123456789",
            "CRITICIZER_WEBHOOK_URL": "https://hooks.example/T0/secret-part",
            "CRITICIZER_HOSTS": "Example.org, git.example:8443,",
            "CRITICIZER_LLM_MODEL": "small",
        }
    )

    assert read.hosts == {"example.org", "git.example:8443"}
    assert (read.llm_key, read.llm_model) == ("sk-one-0123456789", "small")
    assert "sk-one" not in repr(read)
    assert "secret-part" not in repr(read)
    assert (
        Settings.read({"CRITICIZER_LLM_KEY": "sk-two-0123456789", "OPENAI_API_KEY": "x"}).llm_key
        == "sk-two-0123456789"
    )
    assert replace(read, llm_key="").llm_key == ""


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("CRITICIZER_LLM_MODLE", "Did you mean CRITICIZER_LLM_MODEL?"),
        ("CRITICIZER_X", "CRITICIZER_PAGER_URL"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_nearest_name(variable: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.read({variable: "sk-one-0123456789"})

    assert variable in str(refused.value)
    assert hint in refused.value.fix
    assert "sk-one" not in f"{refused.value} {refused.value.fix}"


def test_the_token_goes_to_the_configured_webhook_alone(upstream: Upstream, settings: Settings) -> None:
    token = "hook-token-0123456789"
    with Upstream() as other:
        known = replace(settings, webhook_token=token, webhook_hosts=frozenset({other.address}))
        result = run(order(upstream, "webhook", f"webhook:{other.url}/hook"), known)

        (own,), (foreign,) = upstream.asked["/hook"], other.asked["/hook"]

    assert result.status == "complete"
    assert own.headers["authorization"] == f"Bearer {token}"
    assert "authorization" not in foreign.headers


def test_a_webhook_that_nobody_allowed_gets_nothing(upstream: Upstream, settings: Settings) -> None:
    with Upstream() as other:
        result = run(order(upstream, f"webhook:{other.url}/hook"), settings)
        assert other.asked == {}

    assert result.letter is not None
    assert result.letter.code == "DESTINATION_DENIED"


def test_an_answer_that_is_nested_too_deep_is_bad_input(upstream: Upstream, settings: Settings) -> None:
    job = order(upstream)
    upstream.say("[" * 100_000)

    result = run(job, settings)

    assert result.letter is not None
    assert result.letter.code == "SCHEMA_INVALID"
