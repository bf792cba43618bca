# SPDX-License-Identifier: Apache-2.0
"""Where dead letters go: the stream of `jobs.dlq` on a broker, or files if there is none."""

from __future__ import annotations

from typing import Final

from apps.fetchbox.dead_letters.messages import encode
from apps.fetchbox.metrics import PUBLISHED
from apps.fetchbox.settings import Settings
from redrive.sinks import Files, Nats, SunkLetter
from redrive.sinks.base import Sink

SUBJECT: Final = "jobs.dlq"
STREAM: Final = "jobs-dlq"
"""The stream of the subject: the broker allows no dot in the name of a stream."""
SINK: Final = "dlq"


class LetterStream(Nats):
    """Publishes dead letters as protobuf, and counts what the broker has acknowledged."""

    async def deliver(self, letter: SunkLetter) -> str | None:
        """Publish one letter."""
        receipt = await super().deliver(letter)
        if receipt is not None:
            PUBLISHED.labels(code=letter.code).inc()
        return receipt


def letter_sink(settings: Settings) -> Sink:
    """Return the sink of these settings."""
    if not settings.nats_url:
        return Files(settings.root / "dead-letters", name=SINK)
    return LetterStream(
        settings.nats_url,
        stream=STREAM,
        subject=SUBJECT,
        name=SINK,
        body=encode,
        payload="include",
        max_age=settings.keep_letters_days * 86_400.0,
    )


def pointer_of(receipt: str | None) -> dict[str, object] | None:
    """Return where a dead letter is outside the database: its place in the stream, or its file; None if it is on its way."""
    if receipt is None:
        return None
    stream, slash, offset = receipt.rpartition("/")
    if slash and stream == STREAM and offset.isdecimal():
        return {"stream": SUBJECT, "offset": int(offset)}
    return {"file": receipt}
