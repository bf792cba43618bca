# SPDX-License-Identifier: Apache-2.0
"""A port for supervisors: 200 while the worker is in contact with the store, 503 when it has not been for a whole lease.

Plain HTTP/1.0, any path, one JSON object; it listens on loopback unless another address is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from redrive.errors import ConfigurationError

READ_SECONDS: Final = 5.0
HEAD_MAX: Final = 8_192


@dataclass(frozen=True, slots=True)
class Health:
    """How a worker is."""

    is_well: bool
    facts: dict[str, object]


@asynccontextmanager
async def health_port(host: str, port: int, ask: Callable[[], Health]) -> AsyncGenerator[None]:
    """Answer supervisors on this address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(READ_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
                health = ask()
                body = msgspec.json.encode({"status": "ok" if health.is_well else "unwell", **health.facts})
                line = b"200 OK" if health.is_well else b"503 Service Unavailable"
                writer.write(
                    b"HTTP/1.0 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                    % (line, len(body), body)
                )
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=HEAD_MAX)
    except OSError as error:
        raise ConfigurationError(
            field="health", value=f"{host}:{port}", rule="cannot be listened on", fix=f"{error.strerror}."
        ) from error
    async with server:
        yield
