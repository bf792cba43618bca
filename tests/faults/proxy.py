# SPDX-License-Identifier: Apache-2.0
"""A network between workers and a server that can be cut, or that swallows what is sent: connections stay open, and nothing arrives.

`TlsFront` speaks TLS for a PostgreSQL server that was built without it.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import threading
from types import TracebackType
from typing import Any, Literal, Self

import trustme

Mode = Literal["open", "cut", "swallowing"]
CHUNK = 65_536
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""What a client of PostgreSQL sends first to ask for TLS."""


class Proxy:
    """Passes connections on to a port of this machine, on a thread; use it in a `with` block."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._mode: Mode = "open"
        self._partners: dict[socket.socket, socket.socket] = {}
        self._dropped: list[socket.socket] = []
        """Connections that were open while it swallowed: they stay open, and nothing comes through any more."""
        self._wake_read, self._wake = os.pipe()
        self._is_over = False
        self._taken = threading.Event()
        self._thread = threading.Thread(target=self._pass)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._is_over = True
        os.write(self._wake, b"x")
        self._thread.join()
        for each in (self._listener, *self._partners, *self._dropped):
            each.close()
        os.close(self._wake)
        os.close(self._wake_read)

    def become(self, mode: Mode) -> None:
        """Cut the network, swallow what is sent, or pass it on again; returns when it has done so."""
        self._taken.clear()
        self._mode = mode
        os.write(self._wake, b"x")
        assert self._taken.wait(60)

    def _pass(self) -> None:
        while not self._is_over:
            waiting: list[Any] = [self._wake_read, self._listener, *self._partners]
            ready, _, _ = select.select(waiting, [], [])
            for each in ready:
                if each is self._listener:
                    self._accept()
                elif each == self._wake_read:
                    os.read(self._wake_read, 1)
                    self._change()
                elif each in self._partners:
                    self._forward(each)

    def _change(self) -> None:
        if self._mode != "open":
            for each in self._partners:
                if self._mode == "cut":
                    each.close()
                else:
                    self._dropped.append(each)
            self._partners.clear()
        self._taken.set()

    def _accept(self) -> None:
        link, _ = self._listener.accept()
        if self._mode == "cut":
            link.close()
        elif self._mode == "swallowing":
            self._dropped.append(link)
        else:
            try:
                there = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                link.close()
                return
            for each in (link, there):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._partners |= {link: there, there: link}

    def _forward(self, link: socket.socket) -> None:
        there = self._partners[link]
        try:
            sent = link.recv(CHUNK)
            there.sendall(sent)
        except OSError:
            sent = b""
        if not sent:
            for each in (link, there):
                with contextlib.suppress(KeyError):
                    del self._partners[each]
                each.close()


class TlsFront:
    """Takes connections over TLS and passes them on, in the clear, to a port of this machine; use it in a `with` block."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(self._tls)
        self._thread = threading.Thread(target=self._accept)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # A thread that waits for the next connection does not notice that the socket is closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        # Whoever is cut off, here or there, is simply gone.
        with contextlib.suppress(OSError), link:
            while link.recv(len(SSL_REQUEST), socket.MSG_WAITALL) != SSL_REQUEST:
                link.sendall(b"N")
            link.sendall(b"S")
            secure = self._tls.wrap_socket(link, server_side=True)
            with secure, socket.create_connection(("127.0.0.1", self._target)) as there:
                back = threading.Thread(target=_pump, args=(there, secure), daemon=True)
                back.start()
                _pump(secure, there)
                back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass on what one side sends until one of them is gone."""
    with contextlib.suppress(OSError):
        while sent := source.recv(CHUNK):
            target.sendall(sent)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
