# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: a response that continues, for pages that change by themselves.

A comment goes out when nothing else did for a while, so that proxies keep the connection. The source is closed when the
client leaves and when the server ends; a client that comes back sends the id of the last event it has received.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import msgspec
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

_ID: Final = re.compile(r"[\x20-\x7e]{1,128}")


class ServerEvent(msgspec.Struct, frozen=True):
    """One event: its data, encoded as JSON; the name by which a page listens to it; the id from which a client continues."""

    data: object
    name: str = "message"
    id: str = ""

    def encode(self) -> bytes:
        """Return the event as it is sent; JSON has no line breaks."""
        head = f"id: {self.id}\n" if self.id else ""
        return f"{head}event: {self.name}\ndata: ".encode() + msgspec.json.encode(self.data) + b"\n\n"


EventSource = Callable[[str], AsyncGenerator[ServerEvent]]
"""Takes the id of the last event that the client has, or an empty text, and yields what follows."""


def event_response(request: Request, source: EventSource, *, keep_alive: float = 15.0) -> Response:
    """Return a response that sends what the source yields, until the source ends, the client leaves or the server ends."""
    given = request.headers.get("last-event-id", "")
    events = source(given if _ID.fullmatch(given) else "")
    closing: asyncio.Event = getattr(request.app.state, "closing", None) or asyncio.Event()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_encoded(events, closing, keep_alive), 200, headers, "text/event-stream")


async def _encoded(
    events: AsyncGenerator[ServerEvent], closing: asyncio.Event, keep_alive: float
) -> AsyncGenerator[bytes]:
    # A task of its own closes the source in peace, however this generator is left. None is the end.
    queue: asyncio.Queue[ServerEvent | None] = asyncio.Queue(1)
    feed = asyncio.create_task(_feed(events, queue))
    close = asyncio.create_task(_close(closing, queue))
    try:
        # The first bytes show the client at once that it is connected.
        yield b": connected\n\n"
        while True:
            try:
                async with asyncio.timeout(keep_alive):
                    event = await queue.get()
            except TimeoutError:
                yield b": keep-alive\n\n"
                continue
            if event is None:
                break
            yield event.encode()
        if feed.done():
            feed.result()
    finally:
        feed.cancel()
        close.cancel()


async def _feed(events: AsyncGenerator[ServerEvent], queue: asyncio.Queue[ServerEvent | None]) -> None:
    try:
        async with aclosing(events):
            async for event in events:
                await queue.put(event)
    except Exception:
        await queue.put(None)
        raise
    await queue.put(None)


async def _close(closing: asyncio.Event, queue: asyncio.Queue[ServerEvent | None]) -> None:
    await closing.wait()
    await queue.put(None)
