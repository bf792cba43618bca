# SPDX-License-Identifier: Apache-2.0
"""A stream of NATS JetStream that receives each change of a dead letter as one message. Needs the extra `nats`.

A change was received once the server has acknowledged it; the receipt is the stream and the place in it, as `orders/17`. The
client connects when the first change is delivered and retries nothing by itself: whatever fails, the engine delivers again later.
The message id is the same then, so that the server stores a change once within its window for duplicates.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import msgspec

from redrive.core.arguments import seconds
from redrive.errors import ConfigurationError
from redrive.redaction.process import register_secret
from redrive.sinks.base import Input, Payload, SunkLetter, as_members, check_values

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 5.0
DUPLICATE_SECONDS: Final = 1_200.0
"""The window for duplicates of a stream that the sink makes: longer than the longest pause between two deliveries."""
SECRET_MIN: Final = 8
AGE_MIN: Final = 1.0
"""The shortest time for which messages can be kept, in seconds."""

_STREAM: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_SUBJECT: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

Body = Callable[[SunkLetter], bytes | None]
"""The message about a change of a letter; None for a change that is not sent."""


def json_body(letter: SunkLetter) -> bytes:
    """Return a letter as JSON."""
    return msgspec.json.encode(as_members(letter))


class Nats:
    """Publishes each change of a dead letter to `subject`, which the stream `stream` stores; a missing stream is made.

    `url` is that of a server, `nats://host:4222`, with user and password if necessary. `body` makes the message, JSON by default;
    it may return None for changes that are not to be sent. `max_age` is how long a stream that is made keeps its messages, forever
    by default; one that exists is left as it is.
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str,
        subject: str,
        name: str = "nats",
        body: Body = json_body,
        max_age: timedelta | float | None = None,
        payload: Payload = "exclude",
        input: Input = "exclude",  # noqa: A002 - the field of the letter has this name.
    ) -> None:
        check_values(f"Nats({name})", payload, input)
        self.name = name
        self.payload = payload
        self.input = input
        self._url = _checked_url(name, url)
        self._stream = _checked(name, "stream", stream, _STREAM, fix='"orders": letters, digits, - and _.')
        self._subject = _checked(name, "subject", subject, _SUBJECT, fix='"orders.dlq", without wildcards.')
        if not callable(body):
            raise ConfigurationError(
                field=f"Nats({name}).body",
                value=body,
                rule="must be a function of the letter",
                fix="json_body.",
            )
        self._body = body
        self._max_age = (
            None if max_age is None else seconds(f"Nats({name}).max_age", max_age, minimum=AGE_MIN)
        )
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()
        """One per event loop: a client belongs to the loop it was made on."""

    def __repr__(self) -> str:
        return f"Nats({urlsplit(self._url).hostname!r}, stream={self._stream!r}, name={self.name!r})"

    async def deliver(self, letter: SunkLetter) -> str | None:
        """Publish one change; return its stream and its place in it.

        Raises:
            nats.errors.Error, OSError: The server did not acknowledge it.
        """
        body = self._body(letter)
        if body is None:
            return None
        client = await self._client()
        try:
            answer = await _context(client).publish(
                self._subject,
                body,
                stream=self._stream,
                headers={"Nats-Msg-Id": letter.delivery},
            )
        except Exception:
            # It may be the connection that is broken: the next delivery makes a new one, and looks for the stream again.
            await self.close()
            raise
        return f"{answer.stream}/{answer.seq}"

    async def close(self) -> None:
        """Close the connection of this event loop; the next delivery opens another one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await _closed(client)

    async def _client(self) -> Client:
        loop = asyncio.get_running_loop()
        known = self._clients.get(loop)
        if known is not None and known.is_connected:
            return known
        await self.close()
        made = await connected(self._url)
        try:
            await _ensure_stream(made, self._stream, self._subject, self._max_age)
        except BaseException:
            await _closed(made)
            raise
        self._clients[loop] = made
        return made


async def connected(url: str) -> Client:
    """Return a client that has connected, and that does not reconnect by itself.

    Raises:
        nats.errors.Error, OSError: There is no server, or it refused.
    """
    from nats.aio.client import Client

    client = Client()
    try:
        await client.connect(
            url,
            allow_reconnect=False,
            # One more attempt at once is the fewest that the client can do: 0 is no limit.
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_SECONDS,
            error_cb=_ignored,
        )
    except BaseException:
        await _closed(client)
        raise
    return client


async def _ignored(_error: Exception) -> None:
    """Ignore errors of the connection: a delivery that is affected raises its own."""


async def _closed(client: Client) -> None:
    transport = client._transport  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - `close` leaves it open if connecting failed.
    with suppress(Exception):
        await client.close()
    if transport is not None:
        with suppress(Exception):
            transport.close()  # type: ignore[no-untyped-call]  # - the library has no types there.


def _context(client: Client) -> JetStreamContext:
    from nats.js import JetStreamContext

    return JetStreamContext(client, timeout=ANSWER_SECONDS)


async def _ensure_stream(client: Client, stream: str, subject: str, max_age: float | None) -> None:
    """Make the stream unless there is one; another process may make it at the same time."""
    from nats.js.api import StreamConfig
    from nats.js.errors import NotFoundError

    context = _context(client)
    try:
        await context.stream_info(stream)
    except NotFoundError:
        # The server refuses a window that is longer than the messages are kept.
        window = DUPLICATE_SECONDS if max_age is None else min(DUPLICATE_SECONDS, max_age)
        wanted = StreamConfig(name=stream, subjects=[subject], duplicate_window=window, max_age=max_age)
        await context.add_stream(wanted)  # pyright: ignore[reportUnknownMemberType] - declared with untyped options.


def _checked_url(name: str, url: str) -> str:
    """Return an address, or refuse it without showing it; a password in it is hidden everywhere."""
    if find_spec("nats") is None:
        raise ConfigurationError(
            field=f"Nats({name})", value="nats", rule="is not installed", fix='pip install "redrive[nats]".'
        )
    try:
        address = urlsplit(url)
        is_good = address.scheme in {"nats", "tls"} and bool(address.hostname) and address.port != 0
    except (ValueError, AttributeError, TypeError):
        is_good, address = False, urlsplit("")
    if not is_good:
        raise ConfigurationError(
            field=f"Nats({name}).url",
            value="<not shown>",
            rule="must be the address of a NATS server",
            fix='"nats://127.0.0.1:4222".',
        )
    password = unquote(address.password or address.username or "")
    if len(password) >= SECRET_MIN:
        register_secret(password)
    return url


def _checked(name: str, field: str, value: str, pattern: re.Pattern[str], *, fix: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ConfigurationError(
            field=f"Nats({name}).{field}", value=value, rule=f"must be the name of a {field}", fix=fix
        )
    return value
