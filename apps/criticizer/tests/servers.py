# SPDX-License-Identifier: Apache-2.0
"""Servers on loopback that speak the real wire formats, count what they are asked, and fail as they are told.

Chat completions and their error bodies follow platform.openai.com/docs/api-reference/chat/object and
platform.openai.com/docs/guides/error-codes; the webhook's Idempotency-Key follows draft-ietf-httpapi-idempotency-key-header;
mail is RFC 5321 with the replies of its section 4.2.
"""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

GATE_SECONDS = 60.0


@dataclass(frozen=True)
class Fault:
    """How one request goes wrong."""

    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: object = None
    how: str = "answer"
    """`answer`, `reset` (RST), `stall` (never answers), `trickle` (never ends) or `gate` (answers well, but only when the gate is opened)."""


def openai_error(kind: str, *, code: str | None = None, message: str = "no") -> dict[str, object]:
    """Return an error body as OpenAI sends it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@dataclass(frozen=True)
class Asked:
    """One request."""

    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """A server with a patch, a model and a webhook; each can be told to fail."""

    def __init__(self) -> None:
        self.patch = ""
        self.asked: dict[str, list[Asked]] = defaultdict(list)
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.effects: dict[str, bytes] = {}
        """What the webhook did, by idempotency key: a key it knows has no further effect."""
        self.gate = threading.Event()
        self.at_gate = threading.Semaphore(0)
        """Released by each request that has come to the gate."""
        self._completion: dict[str, object] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"upstream": self}))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.address}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    def say(self, content: str | None, *, finish_reason: str = "stop", refusal: str | None = None) -> None:
        """Say what the model answers from now on."""
        message = {"role": "assistant", "content": content, "refusal": refusal}
        self._completion = {
            "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
            "object": "chat.completion",
            "created": 1741569952,
            "model": "gpt-4o-mini-2024-07-18",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
            "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29},
        }

    def fail(self, path: str, *faults: Fault | int, times: int = 1) -> None:
        """Let the next requests to a path go wrong; a number is a status."""
        made = [Fault(each) if isinstance(each, int) else each for each in faults]
        self.faults[path] += made * times

    def calls(self, path: str) -> int:
        """How often a path was asked."""
        return len(self.asked[path])

    def good_answer(self, path: str, asked: Asked) -> tuple[int, str, bytes]:
        """Return what a path answers when nothing is wrong."""
        if path == "/v1/chat/completions":
            return 200, "application/json", json.dumps(self._completion).encode()
        if path.endswith(".patch"):
            return 200, "text/x-patch; charset=utf-8", self.patch.encode()
        if path in {"/hook", "/page"}:
            self.effects.setdefault(asked.headers["idempotency-key"], asked.body)
            return 200, "application/json", b"{}"
        return 404, "application/json", b"{}"


class _Handler(BaseHTTPRequestHandler):
    upstream: Upstream
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("content-length", 0))))

    def _serve(self, body: bytes) -> None:
        asked = Asked({name.lower(): value for name, value in self.headers.items()}, body)
        upstream = self.upstream
        upstream.asked[self.path].append(asked)
        waiting = upstream.faults[self.path]
        fault = waiting.pop(0) if waiting else None
        if fault is None or fault.how == "gate":
            status, kind, content = upstream.good_answer(self.path, asked)
            if fault is not None:
                upstream.at_gate.release()
                upstream.gate.wait(GATE_SECONDS)
            self._answer(status, content, {"Content-Type": kind})
        elif fault.how == "answer":
            content = fault.body if isinstance(fault.body, bytes) else json.dumps(fault.body).encode()
            self._answer(fault.status, content, {"Content-Type": "application/json", **fault.headers})
        else:
            if fault.how == "stall":
                upstream.gate.wait(GATE_SECONDS)
            elif fault.how == "trickle":
                self._trickle()
            # An RST instead of a FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

    def _trickle(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        try:
            while not self.upstream.gate.wait(0.05):
                self.wfile.write(b"+")
        except OSError:
            # Whoever asked has hung up.
            return

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        try:
            self.send_response(status)
            for name, value in {"x-request-id": "req_42", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            # Whoever asked was killed.
            self.close_connection = True

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            pass

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name.
        """Say nothing."""


class Mailbox:
    """A mail server for one mailbox; `replies` are what it answers to the end of a message before it is well again."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.replies: dict[str, list[str]] = defaultdict(list)
        """By command (RCPT, AUTH, `.`): replies instead of the good one."""
        self.heard: list[str] = []
        """The commands, but for DATA and QUIT."""
        self.connections = 0
        self.is_held = False
        """True to take the next message, and to confirm it only when the gate is opened."""
        self.gate = threading.Event()
        self.at_gate = threading.Event()
        self._server = socketserver.ThreadingTCPServer(
            ("127.0.0.1", 0), type("Session", (_Session,), {"mailbox": self})
        )
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


_GOOD = {"EHLO": "250-mail.example\r\n250-8BITMIME\r\n250 AUTH PLAIN", "AUTH": "235 2.7.0 Accepted"}


class _Session(socketserver.StreamRequestHandler):
    mailbox: Mailbox

    def handle(self) -> None:
        self.mailbox.connections += 1
        self._say("220 mail.example ESMTP")
        while line := self.rfile.readline():
            verb = line.split(b" ")[0].strip().decode().upper()
            if verb == "QUIT":
                self._say("221 2.0.0 Bye")
                return
            if verb == "DATA":
                self._say("354 End data with <CR><LF>.<CR><LF>")
                self._take()
            else:
                self.mailbox.heard.append(line.decode().strip())
                self._reply(verb, _GOOD.get(verb, "250 2.0.0 OK"))

    def _take(self) -> None:
        lines: list[bytes] = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        mailbox, taken = self.mailbox, message_from_bytes(b"".join(lines))
        if mailbox.is_held:
            mailbox.is_held = False
            mailbox.messages.append(taken)
            mailbox.at_gate.set()
            mailbox.gate.wait(GATE_SECONDS)
        elif self._reply(".", "250 2.0.0 Queued"):
            mailbox.messages.append(taken)

    def _reply(self, verb: str, good: str) -> bool:
        """Give the reply that is waiting for a command, or the good one; say whether it was the good one."""
        waiting = self.mailbox.replies[verb]
        reply = waiting.pop(0) if waiting else good
        self._say(reply)
        return reply is good

    def _say(self, reply: str) -> None:
        self.wfile.write(f"{reply}\r\n".encode())
