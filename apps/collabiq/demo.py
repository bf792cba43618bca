# SPDX-License-Identifier: Apache-2.0
"""A demonstration: a small mailbox with one unreadable mail, with the embedded defaults."""

from __future__ import annotations

import mailbox
import tempfile
from collections.abc import Iterator
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Final

from apps.collabiq.settings import Settings
from apps.collabiq.sinks import LocalPages
from apps.collabiq.work import entries, run

MAILS: Final = (
    (
        "Minji Kim <minji@hanbit.example>",
        "Pilot with Northwind Labs",
        "I am Minji Kim of Hanbit Technologies.\nCould we start the pilot with Northwind Labs on March 3, 2026?",
    ),
    (
        "이서준 <seojun@haneul.example>",
        "협업 제안",
        "안녕하세요, (주)하늘소프트 이서준 팀장입니다.\n2026년 3월 12일에 미팅 가능하실까요?",
    ),
    (
        "Ana Sousa <ana@fundo.example>",
        "Term sheet",
        "Dr. Lena Vogt of Fundo Ventures will send the term sheet by 9 April 2026.",
    ),
)


def demo() -> Iterator[str]:
    """Process the mailbox, and return the results and failures, line by line."""
    with tempfile.TemporaryDirectory(prefix="collabiq-") as folder:
        box = Path(folder) / "mail.mbox"
        write_mailbox(box)
        settings = Settings(folder=str(Path(folder) / "data"), mailbox=str(box))
        account = run(settings)
        yield f"{account.listed} mails read: {account.done} done, {account.failed} dead letters."
        for title, kind, people, companies, dates in LocalPages(settings.root).kept():
            yield f"  {title}: {kind}; people {people}; companies {companies}; dates {dates}"
        for entry in entries(settings):
            yield f"  failed: {entry.dlq_id} in {entry.operation_type}: {entry.error_details['error_message']}"


def write_mailbox(path: Path) -> None:
    """Write the mails, and an unreadable one, to an mbox file."""
    with closing(mailbox.mbox(path)) as box:
        for sender, subject, text in MAILS:
            message = EmailMessage()
            message["From"], message["Subject"] = sender, subject
            message["To"] = "Team <team@collabiq.example>"
            message["Date"] = "Mon, 16 Feb 2026 09:00:00 +0000"
            message.set_content(text)
            box.add(message)
        box.add(b"Content-Type: text/plain; charset=no-such-charset\n\n" + bytes(range(128, 256)) + b"\n")
