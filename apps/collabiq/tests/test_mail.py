# SPDX-License-Identifier: Apache-2.0
"""Mails in whatever state they come, and what the built-in extractor finds in them."""

from __future__ import annotations

import base64
import json
import mailbox
import random
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from apps.collabiq.extract import Found, RuleExtractor
from apps.collabiq.mail import LINE_MAX, RAW_MAX, TEXT_MAX, Mail, parse
from apps.collabiq.settings import Settings
from apps.collabiq.sinks import Page, as_markdown
from apps.collabiq.sources import LocalSource
from apps.collabiq.tests.driving import mail, work_off, write_mailbox
from redrive import Fail, Redrive
from redrive.testing import VirtualClock

HEAD = b"From: Minji Kim <minji@hanbit.example>\nSubject: Pilot\n"
DEEP = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(3000))


@contextmanager
def at_most(seconds: float) -> Generator[None]:
    """Fail when more time of the processor was used; what this catches takes minutes."""
    began = time.process_time()
    yield
    assert time.process_time() - began < seconds


READABLE: dict[str, tuple[bytes, str]] = {
    "no date": (HEAD + b"\nhello", "hello"),
    "a date that is none": (HEAD + b"Date: the day after never\n\nhello", "hello"),
    "a date beyond the calendar": (HEAD + b"Date: Mon, 16 Feb 99999 09:00:00 +9999\n\nhello", "hello"),
    "a charset nobody knows": (HEAD + b"Content-Type: text/plain; charset=klingon\n\nhello", "hello"),
    "bytes that are no UTF-8": (
        HEAD + b"Content-Type: text/plain; charset=utf-8\n\nhello and good day \xff",
        "hello and good day \ufffd",
    ),
    "nothing but a subject": (HEAD + b"\n \n", ""),
    "a boundary that never comes": (HEAD + b'Content-Type: multipart/mixed; boundary="x"\n\nhello', "hello"),
    "HTML alone": (
        HEAD
        + b"Content-Type: text/html\n\n<style>p{}</style><p>hello</p><script>x()</script><p>you &amp; me</p>",
        "hello\n\nyou & me",
    ),
    "HTML that never ends": (
        HEAD + b"Content-Type: text/html\n\n1 < 2<!-- x --> <b>bold</B><br/>hello<script>x <p",
        "1 < 2 bold\nhello",
    ),
    "EUC-KR": (
        HEAD + b"Content-Type: text/plain; charset=euc-kr\n\n" + "안녕하세요".encode("euc-kr"),
        "안녕하세요",
    ),
    "a null byte": (HEAD + b"\nhel\x00lo there", "hello there"),
}


@pytest.mark.req("CQ-5.1")
@pytest.mark.parametrize("name", READABLE)
def test_a_mail_in_a_bad_state_is_read_as_far_as_it_can_be(name: str) -> None:
    raw, text = READABLE[name]

    read = parse("e1", raw)

    assert read.text == text
    assert (read.subject, read.sent_at) == ("Pilot", None)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "MAIL_UNREADABLE"),
        (b"\n\n" + bytes(range(128, 256)), "MAIL_UNREADABLE"),
        (DEEP, "MAIL_UNREADABLE"),
        (HEAD + b"Content-Transfer-Encoding: base64\n\n!!!", "MAIL_UNREADABLE"),
        (HEAD + b"\n" + bytes(range(128, 256)), "MAIL_UNREADABLE"),
        (HEAD + b"Content-Type: text/html; charset=utf-8\n\n" + bytes(range(128, 256)), "MAIL_UNREADABLE"),
        (HEAD + b"\n" + b"x" * RAW_MAX, "MAIL_TOO_LARGE"),
    ],
)
def test_a_mail_of_which_nothing_can_be_read_fails_by_name(raw: bytes, code: str) -> None:
    with pytest.raises(Fail) as raised:
        parse("e1", raw)

    assert raised.value.code == code


KOREAN = "안녕하세요, (주)하늘소프트 이서준 팀장입니다.\n2026년 3월 12일에 미팅 가능하실까요?"
UNDECLARED: dict[str, tuple[str, str]] = {
    "EUC-KR": (KOREAN, "euc-kr"),
    "a greeting": ("안녕하세요", "euc-kr"),
    "mostly English": (
        "Hello, this is Bo Chen of Acme Corp. 협업 제안드립니다. Let us meet on March 3.",
        "cp949",
    ),
    "Shift JIS": ("お世話になっております。株式会社サンプルの田中です。", "shift_jis"),
    "GB18030": ("您好 我是北京样本公司的王伟。我们想在三月十二日讨论合作。", "gb18030"),
    "KOI8-R": ("Здравствуйте, меня зовут Иван. Давайте встретимся 12 марта 2026 года.", "koi8-r"),
    "Windows-1252": ("Bonjour, je suis très intéressé par une réunion. À bientôt, Frédéric", "cp1252"),
}


@pytest.mark.req("CQ-5.1")
@pytest.mark.parametrize("declared", [None, "us-ascii", "utf-8", "klingon"])
@pytest.mark.parametrize("name", UNDECLARED)
def test_a_charset_that_is_not_declared_or_wrong_is_detected(name: str, declared: str | None) -> None:
    text, charset = UNDECLARED[name]
    kind = "" if declared is None else f"Content-Type: text/plain; charset={declared}\n"

    read = parse("e1", HEAD + kind.encode() + b"Content-Transfer-Encoding: 8bit\n\n" + text.encode(charset))

    assert read.text == text


@pytest.mark.parametrize("charset", ["utf-8", "euc-kr"])
def test_a_header_without_a_charset_is_read_in_that_of_the_text(charset: str) -> None:
    head = "From: 이서준 <seojun@haneul.example>\nSubject: 협업 제안\n\n"

    read = parse("e1", (head + KOREAN).encode(charset))

    assert (read.subject, read.sender, read.text) == ("협업 제안", "이서준 <seojun@haneul.example>", KOREAN)


@pytest.mark.req("CQ-5.1")
def test_a_korean_mail_without_a_charset_gives_a_full_page(
    settings: Settings, rd: Redrive, clock: VirtualClock
) -> None:
    write_mailbox(settings, [HEAD + b"\n" + KOREAN.encode("euc-kr")])

    work_off(settings, rd)

    (page,) = (settings.root / "pages").glob("*.md")
    assert "(주)하늘소프트" in page.read_text(encoding="utf-8")
    assert "2026-03-12" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", [1_000, 5_000_000])
def test_no_charset_takes_long_to_detect(size: int) -> None:
    raw = random.Random(7).randbytes(size).replace(b"\n", b"")
    with at_most(10), suppress(Fail):
        parse("e1", HEAD + b"\n" + raw)


def test_what_is_attached_is_named_and_never_looked_at() -> None:
    huge = base64.encodebytes(b"\x00" * 10_000_000)
    raw = (
        HEAD
        + b'Content-Type: multipart/mixed; boundary="x"\n\n--x\n\nhello\n--x\n'
        + b'Content-Disposition: attachment; filename="../../big.bin"\nContent-Transfer-Encoding: base64\n\n'
        + huge
        + b"--x--\n"
    )

    read = parse("e1", raw)

    assert (read.text, read.attachments) == ("hello", ("../../big.bin",))


@pytest.mark.parametrize(
    "subject",
    [
        b"=?utf-8?q?Pilot=0D=0ABcc:_everybody=40example.org?=",
        b"=?utf-8?b?UGlsb3QNCkJjYzogZXZlcnlib2R5QGV4YW1wbGUub3Jn?=",
        b"Pilot\n Bcc: everybody@example.org",
    ],
)
def test_a_header_stays_one_line_whatever_is_hidden_in_it(subject: bytes) -> None:
    read = parse("e1", b"Subject: " + subject + b"\n\nhello")

    assert read.subject.split("Bcc")[0].strip() == "Pilot"
    assert "\n" not in read.subject
    assert "\r" not in read.subject


def test_texts_and_headers_have_a_limit() -> None:
    read = parse("e1", b"Subject: " + b"s" * 10_000 + b"\n\n" + b"hello " * 100_000)

    assert (len(read.subject), len(read.text)) == (LINE_MAX, TEXT_MAX)


def found_in(
    text: str, subject: str = "", sent_at: datetime | None = datetime(2026, 2, 16, 9, tzinfo=UTC)
) -> Found:
    made = Mail(
        email_id="e1",
        sender="Minji Kim <minji@hanbit.example>",
        recipients=("ana@fundo.example",),
        subject=subject,
        sent_at=sent_at,
        text=text,
    )
    return RuleExtractor().extract(made)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 2026-03-03 or 2026.3.4", [date(2026, 3, 3), date(2026, 3, 4)]),
        ("March 3, 2026", [date(2026, 3, 3)]),
        ("3rd of March 2026, or Sept. 9", [date(2026, 3, 3), date(2026, 9, 9)]),
        ("Jan 5", [date(2027, 1, 5)]),
        ("2026년 3월 12일", [date(2026, 3, 12)]),
        ("3월 12일에 뵙겠습니다", [date(2026, 3, 12)]),
        ("1월 5일", [date(2027, 1, 5)]),
        ("tomorrow, 모레", [date(2026, 2, 17), date(2026, 2, 18)]),
        ("February 30, 2026; 13월 1일; 99/99", []),
    ],
)
def test_dates_are_found_in_english_and_korean(text: str, expected: list[date]) -> None:
    assert list(found_in(text).dates) == expected


def test_a_date_without_a_year_is_none_when_nobody_knows_when_the_mail_was_sent() -> None:
    assert found_in("March 3 and 2026-03-04", sent_at=None).dates == (date(2026, 3, 4),)


@pytest.mark.parametrize(
    ("text", "people", "companies", "kind"),
    [
        ("Dr. Lena Vogt of Fundo Ventures asks about funding", "Lena Vogt", "Fundo Ventures", "investment"),
        ("This is Bo Chen, Acme Corp. A pilot?", "Bo Chen", "Acme Corp.", "pilot"),
        ("(주)하늘소프트 이서준 팀장입니다. 협업 제안드립니다", "이서준", "(주)하늘소프트", "partnership"),
        ("Nothing to see", "Minji Kim", None, "other"),
    ],
)
def test_people_companies_and_the_kind_are_found(
    text: str, people: str, companies: str | None, kind: str
) -> None:
    found = found_in(text)

    assert people in found.people
    assert found.companies == (() if companies is None else (companies,))
    assert found.kind == kind


@pytest.mark.parametrize(
    "text", ["A-" * 50_000, "Aa " * 33_000, "1월" * 50_000, "가" * 100_000, "<" * 100_000]
)
def test_no_text_takes_long(text: str) -> None:
    with at_most(10):
        found_in(text)


@pytest.mark.parametrize(
    "piece", [b"<", b"<!--", b"<a ", b"<a b='", b"&#", b"<![CDATA[", b"</", b"<?", b"<p>"]
)
def test_no_html_takes_long(piece: bytes) -> None:
    with at_most(10):
        parse("e1", HEAD + b"Content-Type: text/html\n\n" + piece * (400_000 // len(piece)))


@pytest.mark.parametrize(
    "header",
    [
        b"Subject: " + b"=?utf-8?q?" * 50_000,
        b"To: " + b'"<,(' * 50_000,
        b"\n".join([b"To: " + b"\xbe\xc8\xb3\xe7 " * 1_000] * 300),
        b"Content-Type: " + b"a;b*0=" * 50_000,
    ],
)
def test_no_header_takes_long(header: bytes) -> None:
    with at_most(10), suppress(Fail):
        found_in(parse("e1", header + b"\n\nhello").text)


def test_a_maildir_is_read_and_what_was_taken_out_of_it_is_gone(settings: Settings, tmp_path: Path) -> None:
    with closing(mailbox.Maildir(tmp_path / "maildir", create=True)) as box:
        one, _ = box.add(mail("One")), box.add(mail("Two"))
        with closing(LocalSource(str(tmp_path / "maildir"))) as source:
            subjects = {parse(each, source.fetch(each)).subject: each for each in source.ids()}
            box.remove(one)

            assert _fetched(source, subjects["One"]) is None
            assert _fetched(source, subjects["Two"]) is not None


def test_an_mbox_that_was_changed_meanwhile_gives_no_wrong_mail(settings: Settings) -> None:
    path = write_mailbox(settings, [mail("One", "x\n" * 50_000), mail("Two")])
    with closing(LocalSource(str(path))) as source:
        first, second = source.ids()
        path.write_bytes(path.read_bytes().replace(b"Subject: One", b"Subject: Uno"))

        assert _fetched(source, first) is None
        assert _fetched(source, second) is not None


def _fetched(source: LocalSource, email_id: str) -> bytes | None:
    try:
        return source.fetch(email_id)
    except Fail:
        return None


def test_a_page_is_text_and_never_markup() -> None:
    page = Page(email_id="e1", title="<script>[x](y)", sender="# a\n# b", sent_at=None, found=Found())

    assert as_markdown(page).splitlines()[0] == r"# \<script\>\[x\](y)"
    assert r"- From: \# a \# b" in as_markdown(page)


@pytest.mark.req("CQ-5.1")
def test_bad_mails_never_stop_the_others(settings: Settings, rd: Redrive, clock: VirtualClock) -> None:
    bad = [b"X-Number: %d\n\n%s" % (n, bytes(range(128, 256))) for n in range(8)]
    odd = [raw for raw, _ in READABLE.values()]
    write_mailbox(settings, [*bad, mail("First"), *odd, mail("Last")])

    jobs = work_off(settings, rd)

    assert [job.status for job in jobs] == ["failed"] * 8 + ["complete"] * (2 + len(odd))
    assert {job.facts.error_code for job in jobs[:8]} == {"MAIL_UNREADABLE"}


def test_the_local_sink_never_holds_a_mail_twice(
    settings: Settings, rd: Redrive, clock: VirtualClock
) -> None:
    write_mailbox(settings, [mail("One"), mail("Two"), mail("One")])
    first = work_off(settings, rd)
    again = work_off(settings, rd)

    assert len(first) == 2
    assert [job.is_duplicate for job in again] == [True, True]
    with closing(sqlite3.connect(settings.root / "pages.db")) as pages:
        rows = pages.execute("SELECT title, people FROM pages ORDER BY title").fetchall()
    assert [(title, json.loads(people)) for title, people in rows] == [
        ("One", ["Minji Kim", "Team"]),
        ("Two", ["Minji Kim", "Team"]),
    ]
    assert len(list((settings.root / "pages").glob("*.md"))) == 2


def test_a_mail_from_the_last_day_of_the_calendar_has_no_tomorrow() -> None:
    """Whoever sends a mail chooses its date."""
    head = b"From: a@b.example\nSubject: call\nDate: Fri, 31 Dec 9999 10:00:00 +0000\n\n"

    found = RuleExtractor().extract(parse("e1", head + b"Let us meet today, or tomorrow."))

    assert found.dates == (date.max,)
