# SPDX-License-Identifier: Apache-2.0
"""The demo's dependency: an HTTP server on loopback that misbehaves on request.

Each path answers from a script, one entry per request, the last one repeating. A script entry is an answer, or a way to break the
connection. Only for the demo and its tests: it listens on loopback, on a port the system picks.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Answer:
    """One scripted answer; status 0 breaks the connection instead."""

    status: int
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


RESET = Answer(0)
OK = Answer(200, {"ok": True})


class FlakyServer:
    """The server while it runs."""

    def __init__(self, scripts: Mapping[str, Sequence[Answer]]) -> None:
        self._scripts = {path: list(answers) for path, answers in scripts.items()}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer_to(self, path: str) -> Answer:
        """Return the next answer of a path's script."""
        with self._lock:
            script = self._scripts.get(path) or [Answer(404, {"error": {"code": "not_found"}})]
            return script.pop(0) if len(script) > 1 else script[0]

    @contextmanager
    def running(self) -> Generator[FlakyServer]:
        """Serve until the block ends."""
        thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _handler_for(owner: FlakyServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = owner.answer_to(self.path.partition("?")[0])
            if answer.status == 0:
                # A linger of zero makes close() send a reset instead of a polite end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return
            body = json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so.
            """Stay quiet: the demo tells the story itself."""

    return Handler
