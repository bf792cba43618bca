# SPDX-License-Identifier: Apache-2.0
"""Which failures of the real clients are tried again, which are not, and how many calls that makes (CR-1)."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from apps.criticizer.change import Change, Order, PatchUrl
from apps.criticizer.clients.local import LocalReviewer
from apps.criticizer.pipeline import POLICY, fetch, flow, llm, notify
from apps.criticizer.settings import Settings
from apps.criticizer.tests.scenes import FINDING, answer, order, run
from apps.criticizer.tests.servers import Fault, Mailbox, Upstream, openai_error
from redrive import Pipeline, stage
from redrive.testing import InlineResult

PATHS = {"fetch": "/change.patch", "llm": "/v1/chat/completions", "notify": "/hook"}
GONE = {"fetch": "CHANGE_NOT_FOUND", "llm": "MODEL_NOT_FOUND", "notify": "DESTINATION_GONE"}
STAGES = pytest.mark.parametrize("failing", list(PATHS))


def codes(result: InlineResult, failing: str) -> list[str | None]:
    return [each.code for each in result.attempts if each.stage == failing]


def assert_gave_up_at_once(result: InlineResult, upstream: Upstream, failing: str, code: str) -> None:
    assert (result.status, codes(result, failing)) == ("failed", [code])
    assert result.letter is not None
    # "asked" is what Criticizer refuses by itself.
    assert (result.letter.code, result.letter.reason in {"permanent", "asked"}) == (code, True)
    assert upstream.calls(PATHS[failing]) == 1


@pytest.mark.req("CR-1.1")
@STAGES
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault(502), "NETWORK_TRANSIENT"),
        (Fault(503), "NETWORK_TRANSIENT"),
        (Fault(504), "NETWORK_TIMEOUT"),
        (Fault(how="reset"), "NETWORK_TRANSIENT"),
        (Fault(how="stall"), "NETWORK_TIMEOUT"),
    ],
)
def test_trouble_with_the_network_is_tried_again(
    upstream: Upstream, settings: Settings, failing: str, fault: Fault, code: str
) -> None:
    job = order(upstream)
    upstream.fail(PATHS[failing], fault)

    result = run(job, replace(settings, timeout_seconds=0.3))

    assert (result.status, codes(result, failing)) == ("complete", [code, None])
    assert upstream.calls(PATHS[failing]) == 2


@pytest.mark.req("CR-1.1")
def test_a_name_that_cannot_be_resolved_is_tried_again(settings: Settings) -> None:
    job = Order(PatchUrl("http://no-such-host.invalid/change.patch"))

    result = run(job, replace(settings, hosts=frozenset({"no-such-host.invalid"})))

    assert codes(result, "fetch") == ["NETWORK_TRANSIENT"] * 5


@pytest.mark.req("CR-1.2")
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, openai_error("requests", code="rate_limit_exceeded")),
        (429, openai_error("tokens", code="rate_limit_exceeded")),
        (403, openai_error("requests", code="rate_limit_exceeded")),
    ],
)
def test_a_rate_limit_is_tried_again_when_the_model_says(
    upstream: Upstream, settings: Settings, status: int, body: object
) -> None:
    job = order(upstream)
    upstream.fail(PATHS["llm"], Fault(status, {"Retry-After": "45"}, body))

    result = run(job, settings)

    limited = next(each for each in result.attempts if each.code == "RATE_LIMITED")
    assert (result.status, limited.waited) == ("complete", 45.0)


@pytest.mark.req("CR-1.3")
@pytest.mark.parametrize(
    ("failing", "fault"),
    [
        ("llm", Fault(500, body=openai_error("server_error", code="internal_error"))),
        ("notify", Fault(500)),
        ("notify", Fault(501)),
        ("notify", Fault(507)),
    ],
)
def test_an_error_of_the_service_itself_is_tried_until_the_budget_is_spent(
    upstream: Upstream, settings: Settings, failing: str, fault: Fault
) -> None:
    job = order(upstream)
    upstream.fail(PATHS[failing], fault, times=9)

    result = run(job, settings)

    assert (result.status, codes(result, failing)) == ("failed", ["UPSTREAM_INTERNAL"] * 5)
    assert upstream.calls(PATHS[failing]) == 5
    assert result.letter is not None
    assert result.letter.reason == "exhausted"


@pytest.mark.req("CR-1.4")
def test_a_conflict_is_tried_again_because_notifying_twice_does_no_harm(
    upstream: Upstream, settings: Settings
) -> None:
    job = order(upstream)
    upstream.fail(PATHS["notify"], 409)

    result = run(job, settings)

    assert (result.status, codes(result, "notify")) == ("complete", ["WRITE_CONFLICT", None])
    assert len({asked.headers["idempotency-key"] for asked in upstream.asked["/hook"]}) == 1


@pytest.mark.req("CR-1.4")
def test_a_conflict_is_final_where_the_stage_is_not_declared_idempotent(
    upstream: Upstream, settings: Settings
) -> None:
    undeclared = stage(retry=POLICY, name="notify")(notify.fn)
    job = order(upstream)
    upstream.fail(PATHS["notify"], 409)

    result = run(job, settings, Pipeline("criticizer", [fetch, llm, undeclared], codes=flow.codes))

    assert_gave_up_at_once(result, upstream, "notify", "WRITE_CONFLICT")


@pytest.mark.req("CR-1.5")
@pytest.mark.parametrize(
    "said",
    [
        "no JSON at all",
        '{"findings": []}',
        answer(FINDING, version="criticizer.review/2"),
        '{"version": "criticizer.review/1"}',
        '{"version": "criticizer.review/1", "findings": {}}',
        "",
    ],
)
def test_an_answer_that_is_no_review_is_final(upstream: Upstream, settings: Settings, said: str) -> None:
    job = order(upstream)
    upstream.say(said)

    assert_gave_up_at_once(run(job, settings), upstream, "llm", "SCHEMA_INVALID")


@pytest.mark.req("CR-1.5")
@pytest.mark.parametrize(
    "body", [b"<html>a captive portal</html>", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b"null"]
)
def test_an_answer_that_is_no_completion_is_final(
    upstream: Upstream, settings: Settings, body: bytes
) -> None:
    job = order(upstream)
    upstream.fail(PATHS["llm"], Fault(200, body=body))

    assert_gave_up_at_once(run(job, settings), upstream, "llm", "SCHEMA_INVALID")


@pytest.mark.req("CR-1.5")
@pytest.mark.parametrize(
    ("status", "code"), [(400, "SCHEMA_INVALID"), (413, "TOO_LARGE"), (422, "SCHEMA_INVALID")]
)
@STAGES
def test_a_request_that_is_not_accepted_is_final(
    upstream: Upstream, settings: Settings, failing: str, status: int, code: str
) -> None:
    job = order(upstream)
    upstream.fail(PATHS[failing], status)

    assert_gave_up_at_once(run(job, settings), upstream, failing, code)


@pytest.mark.req("CR-1.6")
@pytest.mark.parametrize("status", [401, 403])
@STAGES
def test_a_bad_key_or_a_missing_permission_is_final(
    upstream: Upstream, settings: Settings, failing: str, status: int
) -> None:
    job = order(upstream)
    upstream.fail(
        PATHS[failing], Fault(status, body=openai_error("invalid_request_error", code="invalid_api_key"))
    )

    result = run(job, settings)

    assert result.letter is not None
    assert (result.letter.category, upstream.calls(PATHS[failing])) == ("auth", 1)


@pytest.mark.req("CR-1.7")
@pytest.mark.parametrize("status", [404, 410])
@STAGES
def test_what_is_not_there_is_final(
    upstream: Upstream, settings: Settings, failing: str, status: int
) -> None:
    job = order(upstream)
    upstream.fail(PATHS[failing], status)

    assert_gave_up_at_once(run(job, settings), upstream, failing, GONE[failing])


@pytest.mark.req("CR-1.8")
@pytest.mark.parametrize(
    ("content", "finish_reason", "refusal"),
    [(None, "content_filter", None), (None, "stop", "I'm sorry, I cannot assist with that request.")],
)
def test_a_refusal_of_the_model_is_final_and_waits_for_an_operator(
    upstream: Upstream,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    content: str | None,
    finish_reason: str,
    refusal: str | None,
) -> None:
    job = order(upstream)
    upstream.say(content, finish_reason=finish_reason, refusal=refusal)

    assert_gave_up_at_once(run(job, settings), upstream, "llm", "CONTENT_REJECTED")
    assert "for review: job 1 was refused in llm (CONTENT_REJECTED)" in caplog.messages


@pytest.mark.req("CR-1.8")
def test_a_block_by_the_content_policy_is_final(upstream: Upstream, settings: Settings) -> None:
    job = order(upstream)
    upstream.fail(
        PATHS["llm"], Fault(400, body=openai_error("invalid_request_error", code="content_policy_violation"))
    )

    assert_gave_up_at_once(run(job, settings), upstream, "llm", "CONTENT_REJECTED")


@pytest.mark.req("CR-1.9")
def test_a_bug_is_final_and_pages_somebody(
    upstream: Upstream,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_self: object, _change: Change, _ctx: object) -> None:
        raise AttributeError("'NoneType' object has no attribute 'review'")

    monkeypatch.setattr(LocalReviewer, "review", broken)
    monkeypatch.setenv("CRITICIZER_PAGER_URL", f"{upstream.url}/page")
    result = run(order(upstream), replace(settings, llm_key=""))

    assert (result.status, codes(result, "llm")) == ("failed", ["RUNTIME_BUG"])
    assert [(each.name, each.levelno) for each in caplog.records] == [("criticizer", logging.CRITICAL)]
    assert upstream.calls("/page") == 1
    assert b"RUNTIME_BUG" in upstream.asked["/page"][0].body


@pytest.mark.req("CR-1.9")
def test_a_destination_that_is_not_set_up_is_final_and_pages_somebody(
    upstream: Upstream, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    result = run(order(upstream), replace(settings, webhook_url=""))

    assert (result.status, codes(result, "notify")) == ("failed", ["CONFIG_INVALID"])
    assert caplog.messages == ["page: job 1 failed in notify with CONFIG_INVALID"]


@pytest.mark.req("CR-1.1", "CR-1.3")
def test_a_mail_server_that_is_busy_is_asked_again(
    upstream: Upstream, settings: Settings, mailbox: Mailbox
) -> None:
    mailbox.replies["."] = ["451 4.3.0 try again", "421 4.3.2 going down"]

    result = run(order(upstream, "smtp:team@example.org"), settings)

    assert result.status == "complete"
    assert (mailbox.connections, len(mailbox.messages)) == (3, 1)


@pytest.mark.req("CR-1.7")
def test_a_mailbox_that_is_gone_is_final(upstream: Upstream, settings: Settings, mailbox: Mailbox) -> None:
    mailbox.replies["RCPT"] = ["550 5.1.1 no such user"] * 9

    result = run(order(upstream, "smtp:gone@example.org"), settings)

    assert (result.status, codes(result, "notify"), mailbox.connections) == (
        "failed",
        ["DESTINATION_GONE"],
        1,
    )


@pytest.mark.req("CR-1.6", "CR-4.3")
def test_a_mail_server_that_does_not_take_the_password_is_final_and_the_password_is_not_told(
    upstream: Upstream, settings: Settings, mailbox: Mailbox
) -> None:
    login = replace(settings, smtp_url=f"smtp://ann:pass%40word9@127.0.0.1:{mailbox.port}")
    assert run(order(upstream, "smtp:team@example.org"), login).status == "complete"
    assert "AUTH PLAIN AGFubgBwYXNzQHdvcmQ5" in mailbox.heard
    mailbox.replies["AUTH"] = ["535 5.7.8 pass@word9 is wrong"] * 9

    result = run(order(upstream, "smtp:team@example.org"), login)

    assert codes(result, "notify") == ["AUTH_INVALID"]
    assert "pass@word9" not in str(result.letter)


def test_a_mail_server_that_cannot_do_what_is_asked_is_final(
    upstream: Upstream, settings: Settings, mailbox: Mailbox
) -> None:
    mailbox.replies["RCPT"] = ["555 5.5.4 parameters not recognised"] * 9

    result = run(order(upstream, "smtp:team@example.org"), settings)

    assert (codes(result, "notify"), mailbox.connections) == (["UPSTREAM_INTERNAL"], 1)


def test_no_client_retries_by_itself(upstream: Upstream, settings: Settings, mailbox: Mailbox) -> None:
    """A stage with a budget of n makes exactly n calls, for every client and every n."""
    for attempts in (1, 2, 4):
        brief = [
            stage(retry=replace(POLICY, max_attempts=attempts), name=each.name)(each.fn)
            for each in flow.stages
        ]
        for failing, path in PATHS.items():
            upstream.asked.clear()
            upstream.faults.clear()
            job = order(upstream)
            upstream.fail(path, 503, times=20)
            result = run(job, settings, Pipeline("criticizer", brief, codes=flow.codes))
            assert (result.status, upstream.calls(path)) == ("failed", attempts), failing
        upstream.faults.clear()
        mailbox.connections, mailbox.replies["."] = 0, ["451 4.3.0 try again"] * 20
        run(
            order(upstream, "smtp:team@example.org"),
            settings,
            Pipeline("criticizer", brief, codes=flow.codes),
        )
        assert mailbox.connections == attempts


def test_a_review_that_was_cut_off_is_final(upstream: Upstream, settings: Settings) -> None:
    job = order(upstream)
    upstream.say('{"version": "criti', finish_reason="length")

    assert_gave_up_at_once(run(job, settings), upstream, "llm", "TOO_LARGE")
