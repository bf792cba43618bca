# SPDX-License-Identifier: Apache-2.0
"""The providers' own client libraries against servers on this machine: what is asked, how often, and what becomes of the answers."""

from __future__ import annotations

import errno
import imaplib
import json
import socket
import ssl
import threading
from collections.abc import Generator
from dataclasses import replace

import pytest

from apps.collabiq import extract, sinks, sources
from apps.collabiq.files import files_of
from apps.collabiq.pipeline import open_clients
from apps.collabiq.retry_config import GEMINI_RETRY_CONFIG, NOTION_RETRY_CONFIG
from apps.collabiq.settings import Settings
from apps.collabiq.sources import ImapSource
from apps.collabiq.tests.driving import mail, work_off, write_mailbox
from apps.collabiq.tests.imap_server import ImapServer
from apps.collabiq.tests.services import Gemini, Gmail, Notion
from apps.collabiq.tests.wire import Asked, Fault, Way
from redrive import ConfigurationError, Fail, Redrive
from redrive.testing import VirtualClock

HEALING: list[Way] = [
    429,
    500,
    503,
    "drop",
    Fault(502, b"<html>Bad Gateway</html>", {"Content-Type": "text/html"}),
]
"""What is tried again."""
LASTING: list[Way] = [400, 401, 404]
"""What is not."""


@pytest.fixture
def imap() -> Generator[ImapServer]:
    made = ImapServer()
    yield made
    made.close()


@pytest.mark.req("CQ-5.1")
def test_mail_goes_from_gmail_over_gemini_to_notion(
    remote: Settings, rd: Redrive, clock: VirtualClock, gmail: Gmail, gemini: Gemini, notion: Notion
) -> None:
    gmail.mails = {f"19a3f3f856f0b4d{n}": mail(f"Mail {n}", "안녕하세요") for n in range(5)}

    jobs = work_off(remote, rd)

    assert {job.status for job in jobs} == {"complete"}
    assert gmail.calls("GET /gmail/v1/users/me/messages") == 3 + 5  # three pages of the list, five mails
    assert {each.headers["Authorization"] for each in gmail.asked} == {"Bearer ya29.made-up"}
    assert gmail.asked[0].query["q"] == ["newer_than:7d"]
    assert gemini.calls("POST /v1beta/models/gemini-2.5-flash:generateContent") == 5
    asked = gemini.asked[0]
    assert "안녕하세요" in str(asked.body["contents"])
    assert asked.body["generationConfig"]["responseMimeType"] == "application/json"  # type: ignore[index]
    assert {each.headers["Authorization"] for each in notion.asked} == {"Bearer ntn_made_up"}
    assert {each.headers["Notion-Version"] for each in notion.asked} == {"2025-09-03"}
    properties = next(iter(notion.pages.values()))["properties"]
    assert properties["Name"]["title"][0]["text"]["content"] == "Mail 0"  # type: ignore[index]
    assert properties["Kind"] == {"select": {"name": "pilot"}}  # type: ignore[index]
    assert properties["Dates"]["rich_text"][0]["text"]["content"] == "2026-03-03"  # type: ignore[index]
    assert len(notion.pages) == 5


@pytest.mark.req("CQ-3.1", "CQ-5.1")
@pytest.mark.parametrize("service", ["gmail", "gemini", "notion"])
@pytest.mark.parametrize("way", [*HEALING, *LASTING], ids=str)
def test_a_stage_makes_exactly_as_many_calls_as_it_may(
    remote: Settings,
    rd: Redrive,
    clock: VirtualClock,
    request: pytest.FixtureRequest,
    service: str,
    way: Way,
) -> None:
    faulty: Gmail | Gemini | Notion = request.getfixturevalue(service)
    gmail: Gmail = request.getfixturevalue("gmail")
    gmail.mails = {"19a3f3f856f0b4d4": mail()}
    gmail.only = "GET /gmail/v1/users/me/messages/"
    faulty.forever = way

    (job,) = work_off(remote, rd)

    calls = faulty.calls("/messages/") if service == "gmail" else len(faulty.asked)
    assert job.status == "failed"
    assert calls == (3 if way in HEALING else 1)
    assert len([one for one in job.attempts() if one.outcome != "ok"]) == calls
    (entry,) = files_of(remote)[1].update(rd)
    assert (
        entry.operation_type
        == {"gmail": "gmail_fetch", "gemini": "gemini_extract", "notion": "notion_write"}[service]
    )


@pytest.mark.req("CQ-3.1", "CQ-1.1")
@pytest.mark.parametrize("service", ["gmail", "gemini", "notion"])
def test_a_service_that_says_nothing_is_asked_as_often_and_no_longer_than_it_may(
    remote: Settings,
    rd: Redrive,
    clock: VirtualClock,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
) -> None:
    monkeypatch.setattr(sources, "TIMEOUT", 0.2)
    monkeypatch.setattr(extract, "GEMINI_RETRY_CONFIG", replace(GEMINI_RETRY_CONFIG, timeout=0.2))
    monkeypatch.setattr(sinks, "NOTION_RETRY_CONFIG", replace(NOTION_RETRY_CONFIG, timeout=0.2))
    silent: Gmail | Gemini | Notion = request.getfixturevalue(service)
    gmail: Gmail = request.getfixturevalue("gmail")
    gmail.mails = {"19a3f3f856f0b4d4": mail()}
    over = threading.Event()

    def say_nothing(asked: Asked) -> None:
        if not asked.path.endswith("/messages"):
            over.wait(30)

    silent.on_request = say_nothing
    (job,) = work_off(remote, rd)
    over.set()

    failed = [one for one in job.attempts() if one.outcome != "ok"]
    assert [one.code for one in failed] == ["NETWORK_TIMEOUT"] * 3
    assert len([each for each in silent.asked if not each.path.endswith("/messages")]) == 3
    (entry,) = files_of(remote)[1].update(rd)
    assert "Timeout" in str(entry.error_details["error_type"])


@pytest.mark.req("CQ-3.1")
def test_a_failed_creation_is_tried_again_after_another_look(
    remote: Settings, rd: Redrive, clock: VirtualClock, gmail: Gmail, notion: Notion
) -> None:
    gmail.mails = {"19a3f3f856f0b4d4": mail()}
    notion.only = "POST /v1/pages"
    notion.forever = 503

    (job,) = work_off(remote, rd)

    assert job.status == "failed"
    assert (notion.calls("/query"), notion.calls("POST /v1/pages")) == (3, 3)


def test_a_page_that_was_made_although_the_answer_was_lost_is_found_again(
    remote: Settings, rd: Redrive, clock: VirtualClock, gmail: Gmail, notion: Notion
) -> None:
    gmail.mails = {"19a3f3f856f0b4d4": mail()}
    lost: list[str] = []
    carry_out = notion.answer

    def answer(asked: object) -> object:
        made = carry_out(asked)  # type: ignore[arg-type]
        if not lost and len(notion.pages) == 1:
            lost.append("the answer")
            return Fault(504, b"")
        return made

    notion.answer = answer  # type: ignore[method-assign]

    (job,) = work_off(remote, rd)

    assert job.status == "complete"
    assert len(notion.pages) == 1
    assert (notion.calls("POST /v1/pages"), notion.calls("PATCH /v1/pages/")) == (1, 1)


def test_a_mail_the_model_does_not_answer_to_is_given_up_and_no_fault_of_the_service(
    remote: Settings, rd: Redrive, clock: VirtualClock, gmail: Gmail, gemini: Gemini
) -> None:
    gmail.mails = {f"19a3f3f856f0b4d{n}": mail() for n in range(6)}
    gemini.text = None

    jobs = work_off(remote, rd)

    assert {job.facts.error_code for job in jobs} == {"REJECTED_POLICY"}
    assert len(gemini.asked) == 6


def test_no_key_stands_in_what_is_written_about_a_failure(
    remote: Settings, rd: Redrive, clock: VirtualClock, gmail: Gmail, gemini: Gemini
) -> None:
    gmail.mails = {"19a3f3f856f0b4d4": mail("A secret plan")}
    gemini.forever = Fault(
        400, {"error": {"code": 400, "message": "API key AIza-made-up is bad: A secret plan", "status": "X"}}
    )

    work_off(remote, rd)

    told = "".join(path.read_text() for path in remote.root.glob("logs/*/*.json"))
    told += "".join(json.dumps(entry.error_details) for entry in files_of(remote)[1].update(rd))
    assert "is bad" in told
    assert "Traceback" in told
    assert "AIza-made-up" not in told
    assert "secret plan" not in told


@pytest.fixture
def by_imap(settings: Settings, imap: ImapServer) -> Settings:
    return replace(
        settings, source="imap", imap_host="127.0.0.1", imap_port=imap.port, imap_tls=False, imap_user="kim"
    )


def test_mail_comes_over_imap_and_is_not_marked_as_read(
    by_imap: Settings, rd: Redrive, clock: VirtualClock, imap: ImapServer
) -> None:
    imap.mails = {4: mail("One"), 9: mail("Two")}

    jobs = work_off(by_imap, rd)

    assert [(job.facts.key, job.status) for job in jobs] == [("77-4", "complete"), ("77-9", "complete")]
    assert "SELECT" not in imap.commands
    assert "STORE" not in imap.commands


@pytest.mark.req("CQ-3.1")
@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        ("drop", 3),
        ("[UNAVAILABLE] later", 3),
        ("[LIMIT] slow down", 3),
        ("[SERVERBUG] oops", 3),
        ("[NONEXISTENT] no such mail", 1),
        ("[NOPERM] not for you", 1),
        ("no reason", 1),
    ],
)
def test_a_fetch_over_imap_is_made_exactly_as_often_as_it_may(
    by_imap: Settings, rd: Redrive, clock: VirtualClock, imap: ImapServer, fault: str, calls: int
) -> None:
    imap.mails = {4: mail("One")}
    imap.faults.extend([fault] * 9)

    (job,) = work_off(by_imap, rd)

    assert job.status == "failed"
    assert imap.commands.count("FETCH") == calls


@pytest.mark.req("CQ-3.1", "CQ-5.1")
@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), 3),
        (OSError(errno.EHOSTUNREACH, "No route to host"), 3),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), 3),
        (imaplib.IMAP4.error("b'[UNAVAILABLE] Temporary authentication failure.'"), 3),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), 1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_imap_server_that_cannot_be_reached_is_tried_as_often_as_other_services(
    by_imap: Settings,
    rd: Redrive,
    clock: VirtualClock,
    imap: ImapServer,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    calls: int,
) -> None:
    imap.mails = {4: mail("One")}
    connect = imaplib.IMAP4.open
    opened: list[str] = []

    def open_once(server: imaplib.IMAP4, *args: object, **kwargs: object) -> None:
        opened.append("a connection")
        if len(opened) > 1:  # the first one lists the mail
            raise error
        connect(server, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(imaplib.IMAP4, "open", open_once)

    (job,) = work_off(by_imap, rd)

    assert job.status == "failed"
    assert len(opened) == 1 + calls


@pytest.mark.parametrize(
    "email_id",
    [
        "5-1 (FLAGS)\r\nZ1 SELECT INBOX\r\n",
        "77-4\n",
        "77-4:*",
        "77-*",
        "77-0",
        "77-",
        "4",
        "",
        "\u0667\u0667-\u0664",
        f"77-{10**10}",
    ],
)
def test_nothing_but_an_id_reaches_a_line_of_the_imap_protocol(
    by_imap: Settings, imap: ImapServer, email_id: str
) -> None:
    imap.mails = {4: mail("One")}

    with pytest.raises(Fail) as raised:
        ImapSource(by_imap, imap.password).fetch(email_id)

    assert raised.value.code == "MAIL_GONE"
    assert imap.lines == []


def test_settings_reach_the_imap_server_quoted_or_not_at_all(by_imap: Settings, imap: ImapServer) -> None:
    imap.mails = {4: mail("One")}
    odd = replace(by_imap, imap_user='k"im \\ x', imap_folder="Sent mail")

    assert list(ImapSource(odd, imap.password).ids()) == ["77-4"]
    assert any(rb'LOGIN "k\"im \\ x" ' in line for line in imap.lines)
    assert any(b'EXAMINE "Sent mail"' in line for line in imap.lines)
    for name in ("imap_user", "imap_folder"):
        with pytest.raises(ConfigurationError, match=name.upper()):
            ImapSource(replace(by_imap, **{name: "x\r\nZ1 SELECT INBOX"}), imap.password)  # type: ignore[arg-type]


def test_a_mail_that_is_gone_is_no_fault_of_the_server(
    imap: ImapServer, settings: Settings, rd: Redrive
) -> None:
    there = replace(settings, imap_host="127.0.0.1", imap_port=imap.port, imap_tls=False)
    source = ImapSource(replace(there, imap_user="kim", imap_folder='IN"BOX'), imap.password)
    imap.mails = {4: mail("One")}

    for gone in ("77-5", "76-4"):
        with pytest.raises(Fail) as raised:
            source.fetch(gone)
        assert raised.value.code == "MAIL_GONE"

    write_mailbox(settings, [mail("One")])
    with open_clients(rd, settings) as clients, pytest.raises(Fail):
        clients.source.fetch("0" * 16)


def test_a_huge_mail_is_not_read_to_its_end(
    by_imap: Settings, imap: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "RAW_MAX", 1_000)
    imap.mails[4] = b"x" * 100_000

    assert len(ImapSource(by_imap, imap.password).fetch("77-4")) == 1_001
