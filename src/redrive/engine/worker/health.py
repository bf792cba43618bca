# SPDX-License-Identifier: Apache-2.0
"""A port for supervisors: 200 while the worker is in contact with the store, 503 when it has not been for a whole lease.

Plain HTTP/1.0, any path, one JSON object; a path of which an observer knows a page, such as /metrics, is answered with that.
It listens on loopback unless another address is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

import msgspec

from redrive.engine.observers import Observers
from redrive.errors import ConfigurationError

READ_SECONDS: Final = 5.0
HEAD_MAX: Final = 8_192
CONNECTIONS_MAX: Final = 32
"""Connections at once; for one more the oldest is closed, so that idle ones cannot use up the descriptors of the worker."""
PORT_MAX: Final = 65_535


def check_port(field: str, port: object, *, further: int = 0) -> int:
    """Return a port number that leaves room for so many further ones; refuse anything else."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port <= PORT_MAX - further:
        least = f", with {further} more after it" if further else ""
        raise ConfigurationError(
            field=field,
            value=port,
            rule=f"must be a whole number from 1 to {PORT_MAX}{least}",
            fix="8081, for example.",
        )
    return port


def check_address(field: str, address: object) -> tuple[str, int]:
    """Return an address to listen on; refuse anything else."""
    pair = _parts(address)
    if len(pair) != 2 or not isinstance(pair[0], str) or not pair[0].strip():
        raise ConfigurationError(
            field=field,
            value=address,
            rule="must be an address and a port",
            fix=f'{field}=("127.0.0.1", 8081), for example.',
        )
    return pair[0], check_port(f"{field} (the port)", pair[1])


def _path_of(head: bytes) -> str:
    """Return the path of a request, without its query; empty if it has none."""
    words = head.split(maxsplit=2)
    return words[1].partition(b"?")[0].decode("latin-1") if len(words) > 2 else ""


def _health_answer(facts: dict[str, object]) -> bytes:
    status = "200 OK" if facts["status"] == "ok" else "503 Service Unavailable"
    return _answer("application/json", msgspec.json.encode(facts), status)


def _answer(kind: str, body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _parts(address: object) -> Sequence[object]:
    return cast("Sequence[object]", address) if isinstance(address, tuple | list) else ()


@asynccontextmanager
async def health_port(
    host: str, port: int, ask: Callable[[], dict[str, object]], observers: Observers | None = None
) -> AsyncGenerator[None]:
    """Answer supervisors on this address, with facts whose `status` is `ok` while the worker is healthy."""
    known = observers or Observers()
    connections: dict[asyncio.StreamWriter, None] = {}

    async def limited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= CONNECTIONS_MAX:
            oldest = next(iter(connections))
            del connections[oldest]
            oldest.transport.abort()
        connections[writer] = None
        try:
            await answer(reader, writer)
        finally:
            connections.pop(writer, None)
            writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                page = known.health_page(_path_of(head))
                writer.write(
                    _health_answer(ask()) if page is None else _answer(*await asyncio.to_thread(page))
                )
                await writer.drain()

    try:
        server = await asyncio.start_server(limited, host, port, limit=HEAD_MAX)
    except (OSError, ValueError) as error:
        # A host that cannot be a name, by its length or its characters, is a ValueError.
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(
            field="health", value=f"{host}:{port}", rule="cannot be listened on", fix=f"{reason}."
        ) from error
    async with server:
        try:
            yield
        finally:
            for writer in connections:
                writer.transport.abort()
