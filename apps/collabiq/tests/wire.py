# SPDX-License-Identifier: Apache-2.0
"""A service on a port of this machine, which answers as told: normally, with a fault, or after a while."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

LONGEST_S: Final = 30.0


@dataclass(frozen=True)
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: dict[str, object]


@dataclass(frozen=True)
class Fault:
    """An answer that is none of the good ones."""

    status: int
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


Way = Literal["drop"] | int | Fault | None
"""What a request meets: a connection that closes without an answer, a status with its documented body, or a good answer."""


class Service:
    """One provider. `faults` are met by the requests to come, one each; then all is well. `forever` is met by all of them."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.faults: deque[Way] = deque()
        self.forever: Way = None
        self.only = ""
        self.on_request: Callable[[Asked], None] = lambda _asked: None
        """Called before a request is answered, and after it was carried out."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def answer(self, asked: Asked) -> object:
        """Carry out a request and return the body of the answer; a Fault is sent as it is."""
        raise NotImplementedError

    def refusal(self, status: int) -> Fault:
        """Return what the provider documents for this status."""
        raise NotImplementedError

    def met(self, asked: Asked) -> Way:
        """Return what a request meets; faults are for those that have the text `only` in them."""
        if self.only not in f"{asked.method} {asked.path} {json.dumps(asked.body)}":
            return None
        return self.faults.popleft() if self.faults else self.forever

    def calls(self, text: str) -> int:
        """Return how many requests had this in `METHOD path`."""
        return sum(1 for each in self.asked if text in f"{each.method} {each.path}")

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(LONGEST_S)


def _handler_of(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = LONGEST_S

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            raw = self.rfile.read(length)
            address = urlsplit(self.path)
            body = json.loads(raw) if raw else {}
            asked = Asked(
                self.command, address.path, parse_qs(address.query), dict(self.headers.items()), body
            )
            service.asked.append(asked)
            way = service.met(asked)
            if way == "drop":
                service.on_request(asked)
                self.close_connection = True
                return
            answer = service.refusal(way) if isinstance(way, int) else way or service.answer(asked)
            service.on_request(asked)
            try:
                self._send(answer if isinstance(answer, Fault) else Fault(200, answer))
            except OSError:
                pass  # The client was killed, which some of these tests are about.

        do_POST = do_PATCH = do_GET  # noqa: N815 - named by the base class.

        def _send(self, answer: Fault) -> None:
            raw = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_args: object) -> None:
            pass

    return Handler
