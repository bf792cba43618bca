# SPDX-License-Identifier: Apache-2.0
"""Large mails: they are parsed in a bounded amount of memory, and nothing that is read gets lost."""

from __future__ import annotations

import base64
import tracemalloc
from email.message import EmailMessage

import pytest

from apps.collabiq.mail import TEXT_MAX, parse
from apps.collabiq.mail_lines import MAIL_BYTES, lines_worth_parsing

HEAD = b"From: a@example.org\r\nSubject: parcels\r\n"
MIXED = HEAD + b'MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="here"\r\n\r\n--here\r\n'
ATTACHED = b'\r\n--here\r\nContent-Disposition: attachment; filename="list.csv"\r\n\r\n'
SIZE = 1_000_000


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"\r\n" + b"\n" * SIZE,
        HEAD + b"\r\n" + b"--\n" * (SIZE // 12),
        MIXED + b"\r\nhello" + b"\r\n--here\r\n" * (SIZE // 11),
        MIXED + b"\r\nhello" + ATTACHED + b"x\n" * (SIZE // 2),
        HEAD + b"\r\n" + b"x" * 4 * SIZE,
    ],
    ids=["blank lines", "dashes", "boundaries", "attachment", "one line"],
)
def test_memory_is_bounded(raw: bytes) -> None:
    tracemalloc.start()
    try:
        parse("1", raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 12 * len(raw)


def test_what_comes_after_a_large_attachment_is_read() -> None:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "a@example.org", "parcels"
    mail.set_content("before")
    mail.add_attachment(bytes(range(256)) * 40_000, "application", "octet-stream", filename="large.bin")
    mail.add_attachment(b"x", "application", "octet-stream", filename="small.bin")
    raw = mail.as_bytes()

    parsed = parse("1", raw)

    assert (parsed.text, parsed.attachments) == ("before", ("large.bin", "small.bin"))
    assert sum(map(len, lines_worth_parsing(raw))) < MAIL_BYTES < len(raw)


def test_a_long_text_is_read_as_far_as_before() -> None:
    text = "\n".join(f"parcel {number} is late" for number in range(200_000))
    encoded = base64.encodebytes(text.encode())
    raw = (
        HEAD
        + b"Content-Transfer-Encoding: base64\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
        + encoded
    )

    assert parse("1", raw).text == text[:TEXT_MAX]
