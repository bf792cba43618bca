# SPDX-License-Identifier: Apache-2.0
"""A server that misbehaves on purpose, on a real socket.

Each `Listener` has a port of its own on 127.0.0.1 and one behaviour: a function of the connection, the request and an event that is
set when the test is over. A behaviour that must be slow waits for that event, so nothing here sleeps.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

LONGEST_S: Final = 60.0
"""How long a stalling behaviour waits at most, in case a test forgets to end."""

_HEAD_END: Final = b"\r\n\r\n"
_CLIENT_HELLO: Final = b"\x16"
_REASON: Final = {
    200: "OK",
    302: "Found",
    403: "Forbidden",
    404: "Not Found",
    407: "Proxy Authentication Required",
}


@dataclass(frozen=True)
class Request:
    """The part of a request that a behaviour may look at."""

    line: str
    head: str

    @property
    def path(self) -> str:
        """The request target."""
        return self.line.split(" ")[1]


Behaviour = Callable[[socket.socket, Request, threading.Event], None]


class Listener:
    """One misbehaving server; `url` says where."""

    def __init__(self, behave: Behaviour, *, tls: ssl.SSLContext | None = None) -> None:
        self._behave = behave
        self._tls = tls
        self._over = threading.Event()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.requests: list[Request] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Let stalling behaviours go on, and wait for every thread."""
        self._over.set()
        # A listening socket that is merely closed leaves accept() blocked on Linux; shutting it down wakes it.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(LONGEST_S)
        self._socket.close()
        for thread in self._threads:
            thread.join(LONGEST_S)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(LONGEST_S)
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            request = read_request(connection)
            if request is not None:
                self.requests.append(request)
                self._behave(connection, request, self._over)
        except OSError:
            pass  # The client went away, which many of these tests are about.
        finally:
            connection.close()


class Refusing:
    """A port that is taken but not listened on: connecting to it is refused, and nobody else can get it meanwhile."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()


Serve = Callable[..., Listener]
"""Start a listener with a behaviour, and with a certificate if told: the fixture `serve`."""


@dataclass(frozen=True)
class Certificates:
    """Server certificates, and the file with the authority that clients are told to trust."""

    good: ssl.SSLContext
    untrusted: ssl.SSLContext
    wrong_host: ssl.SSLContext
    expired: ssl.SSLContext
    trusted_pem: str
    good_chain: bytes
    good_key: bytes
    trusted_bytes: bytes
    untrusted_chain: bytes
    untrusted_key: bytes


def read_request(connection: socket.socket) -> Request | None:
    """Read one whole request, body included: closing a socket with unread bytes would reset it."""
    data = b""
    while _HEAD_END not in data:
        part = connection.recv(65536)
        if not part:
            return None
        data += part
        if data[:1] == _CLIENT_HELLO:
            return Request(line="HELLO /", head="")
    raw_head, _, body = data.partition(_HEAD_END)
    head = raw_head.decode("latin-1")
    lower = head.lower()
    if "expect: 100-continue" in lower:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    length = _length(lower)
    while len(body) < length:
        body += connection.recv(65536)
    if "transfer-encoding: chunked" in lower:
        while not body.endswith(b"0\r\n\r\n"):
            body += connection.recv(65536)
    return Request(line=head.split("\r\n", 1)[0], head=head)


def _length(lower_head: str) -> int:
    lines = [line for line in lower_head.split("\r\n") if line.startswith("content-length:")]
    return int(lines[0].split(":")[1]) if lines else 0


def answer(status: int, body: object = b"", headers: Mapping[str, str] | None = None) -> Behaviour:
    """Send this answer; a body that is no bytes is sent as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "text/plain" if isinstance(body, bytes) else "application/json"
    sent = {"content-type": kind, "content-length": str(len(raw)), "connection": "close", **(headers or {})}

    def behave(connection: socket.socket, request: Request, _over: threading.Event) -> None:
        shown = b"" if request.line.startswith("HEAD") else raw
        connection.sendall(head(status, sent) + shown)

    return behave


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the start of an answer."""
    lines = [
        f"HTTP/1.1 {status} {_REASON.get(status, 'Status')}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode("latin-1") + _HEAD_END


def reset(connection: socket.socket, _request: Request, _over: threading.Event) -> None:
    """Take the request and reset the connection."""
    _reset(connection)


def disconnect(connection: socket.socket, _request: Request, _over: threading.Event) -> None:
    """Take the request and close the connection politely, without an answer."""
    connection.shutdown(socket.SHUT_RDWR)


def garbage(connection: socket.socket, _request: Request, _over: threading.Event) -> None:
    """Answer with something that is no HTTP."""
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\x00\x01\x02 hello\r\n\r\n")


def silence(_connection: socket.socket, _request: Request, over: threading.Event) -> None:
    """Take the request and say nothing until the test is over."""
    over.wait(LONGEST_S)


def stalled_body(connection: socket.socket, _request: Request, over: threading.Event) -> None:
    """Send the start of a body and no more until the test is over."""
    connection.sendall(head(200, {"content-length": "1000"}) + b"only the start")
    over.wait(LONGEST_S)


def truncated_body(connection: socket.socket, request: Request, _over: threading.Event) -> None:
    """Promise a thousand bytes, send a few, close."""
    start = b"" if request.line.startswith("HEAD") else b"only the start"
    connection.sendall(head(200, {"content-length": "1000", "connection": "close"}) + start)
    connection.shutdown(socket.SHUT_WR)


def truncated_chunk(connection: socket.socket, _request: Request, _over: threading.Event) -> None:
    """Close in the middle of a chunk."""
    connection.sendall(head(200, {"transfer-encoding": "chunked"}) + b"ff\r\nonly the start")
    connection.shutdown(socket.SHUT_WR)


def reset_body(connection: socket.socket, _request: Request, over: threading.Event) -> None:
    """Send the start of a body, then reset."""
    connection.sendall(head(200, {"content-length": "1000"}) + b"only the start")
    _reset(connection)


def redirect_loop(connection: socket.socket, request: Request, over: threading.Event) -> None:
    """Redirect every request to itself."""
    answer(302, headers={"location": request.path})(connection, request, over)


def broken_gzip(connection: socket.socket, request: Request, over: threading.Event) -> None:
    """Declare a compressed body and send something else."""
    answer(200, b"this is not gzip", {"content-encoding": "gzip"})(connection, request, over)


def _reset(connection: socket.socket) -> None:
    """Close with a reset: lingering for zero seconds drops what was not sent and sends RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
