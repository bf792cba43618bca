# SPDX-License-Identifier: Apache-2.0
"""Run an application on uvicorn until a signal ends it: event streams end at once, other requests may finish.

It writes no log of its own and prints nothing; the caller learns the address when the port is open.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from socket import socket
from typing import Final

import uvicorn
from fastapi import FastAPI

FINISH_SECONDS: Final = 10
"""How long running requests may take to finish after a signal."""


def serve(
    app: FastAPI, *, host: str = "127.0.0.1", port: int, on_ready: Callable[[str, int], None] | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; a second signal ends it without waiting.

    Args:
        app: The application. `app.state.closing`, an `asyncio.Event`, is set when the server begins to end.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        on_ready: Called with the address and the port once requests are accepted.
    """
    config = uvicorn.Config(
        app,
        host,
        port,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=FINISH_SECONDS,
    )
    asyncio.run(_Server(config, app, on_ready).serve())


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, app: FastAPI, on_ready: Callable[[str, int], None] | None
    ) -> None:
        super().__init__(config)
        self._app = app
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket] | None = None) -> None:
        self._app.state.closing = asyncio.Event()
        await super().startup(sockets)
        if self.started and self._on_ready is not None:
            address = self.servers[0].sockets[0].getsockname()
            self._on_ready(address[0], address[1])

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take signals on the loop; unlike uvicorn's own way, the process then ends by itself, with status 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self._app.state.closing.set()
