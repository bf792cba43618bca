# SPDX-License-Identifier: Apache-2.0
"""A mailbox to read, and a worker in virtual time: sockets are real, waits are not."""

from __future__ import annotations

import asyncio
import itertools
import mailbox
from collections.abc import Sequence
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path

from apps.collabiq.files import files_of
from apps.collabiq.pipeline import MailRef, open_clients, pipeline_of
from apps.collabiq.records import MAIL_PIPELINE
from apps.collabiq.settings import Settings
from redrive import Job, Redrive
from redrive.engine.delivery.outbox import Delivery
from redrive.engine.replay.rules import record_rules
from redrive.engine.runtime import CURRENT
from redrive.engine.worker.worker import Worker
from tests.inline import at_once, inline_parts


def mail(
    subject: str = "Pilot", text: str = "Shall we meet?", sender: str = "Minji Kim <minji@hanbit.example>"
) -> bytes:
    """Return a good mail."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, "Team <team@collabiq.example>", subject
    message["Date"] = "Mon, 16 Feb 2026 09:00:00 +0000"
    message.set_content(text)
    return message.as_bytes()


def write_mailbox(settings: Settings, mails: Sequence[bytes]) -> Path:
    """Write mails to the mailbox of these settings."""
    with closing(mailbox.mbox(settings.mailbox)) as box:
        for each in mails:
            box.add(each)
    return Path(settings.mailbox)


def work_off(settings: Settings, rd: Redrive, *, concurrency: int = 1) -> list[Job]:
    """Submit every mail of the source, in order, work until idle, tell hooks and sinks; return the jobs."""
    with open_clients(rd, settings) as clients:
        pipeline = pipeline_of(settings, clients)
        jobs = [rd.submit(pipeline, MailRef(each), key=each) for each in clients.source.ids()]
        record_rules(rd.store, [pipeline])

        async def scene() -> None:
            names = (f"w{n}" for n in itertools.count(1))
            worker = Worker(
                rd.store,
                [pipeline],
                inline_parts(),
                names=names,
                concurrency=concurrency,
                resources={MAIL_PIPELINE: [clients]},
            )
            await worker.run(until_idle=True)
            hooks = Delivery(rd.store, worker.lanes, CURRENT.get().clock, ask_store=at_once, call=at_once)
            while await hooks.deliver():
                pass

        asyncio.run(scene())
    files_of(settings)[1].update(rd)
    return jobs
