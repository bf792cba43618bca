# SPDX-License-Identifier: Apache-2.0
"""Servers on real sockets that misbehave on purpose, each on a port of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

Talk = Callable[[socket.socket], None]
"""What a server does with one connection; returning closes it."""

PATIENCE = 5.0


class Listener:
    """A server that holds one conversation after the other until it is closed."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(PATIENCE)
                self._talk(connection)

    def close(self) -> None:
        """Stop listening; a conversation under way ends by itself."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(PATIENCE)


@contextlib.contextmanager
def listening(talk: Talk) -> Iterator[int]:
    """Run a server for the length of a block; gives its port."""
    listener = Listener(talk)
    try:
        yield listener.port
    finally:
        listener.close()


def hang_up(connection: socket.socket) -> None:
    """Listen for a moment, then close in good order."""
    connection.recv(65_536)


def reset(connection: socket.socket) -> None:
    """Break the connection off with a TCP reset."""
    connection.recv(65_536)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def saying(*replies: bytes) -> Talk:
    """Build a conversation: one reply for everything that comes in, then the end."""

    def talk(connection: socket.socket) -> None:
        for reply in replies:
            if connection.recv(65_536):
                connection.sendall(reply)

    return talk


def securing(context: ssl.SSLContext, *, consent: bytes = b"") -> Talk:
    """Build a conversation that only sets up TLS; with `consent` the client asks for it in the clear first, as PostgreSQL's do."""

    def talk(connection: socket.socket) -> None:
        if consent:
            connection.recv(65_536)
            connection.sendall(consent)
        with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as secured:
            try:
                secured.do_handshake()
                secured.recv(65_536)
            except ssl.SSLError:
                # Closing with something left to read would reset the connection and overtake the alert.
                while socket.socket.recv(secured, 65_536):
                    pass

    return talk


def greeting(first: bytes, *replies: bytes) -> Talk:
    """Build a conversation that the server opens, as in SMTP, FTP, POP and IMAP; it stays silent after the last reply."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(first)
        saying(*replies)(connection)
        while connection.recv(65_536):
            pass

    return talk


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Hold a port that refuses connections: bound, so that nobody else gets it, but not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """Hold a port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening_only:
        yield listening_only.getsockname()[1]
