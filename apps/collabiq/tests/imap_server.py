# SPDX-License-Identifier: Apache-2.0
"""A small IMAP server: what RFC 3501 asks for to log in, open a folder for reading, search it and fetch from it."""

from __future__ import annotations

import re
import socketserver
import threading
from collections import deque
from typing import Final

_PARTIAL = re.compile(rb"BODY\.PEEK\[\]<0\.(\d+)>")
_COMMAND: Final = re.compile(rb"(\S+) (UID )?(\S+) ?(.*)\r\n")


class ImapServer:
    """One folder with mails. `faults` are met by FETCH commands, one each: "drop", or the text of a NO."""

    def __init__(self) -> None:
        self.mails: dict[int, bytes] = {}
        self.validity = 77
        self.password = "sesame-street"
        self.commands: list[str] = []
        self.lines: list[bytes] = []
        self.faults: deque[str] = deque()
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    def answer(self, verb: str, rest: bytes) -> tuple[list[bytes], bytes] | None:
        """Return the untagged lines and the tagged end of an answer; None to close the connection."""
        match verb:
            case "CAPABILITY":
                return [b"* CAPABILITY IMAP4rev1"], b"OK done"
            case "LOGIN":
                if self.password.encode() not in rest:
                    return [], b"NO [AUTHENTICATIONFAILED] Invalid credentials"  # RFC 5530 section 3
                return [], b"OK logged in"
            case "EXAMINE":
                validity = b"* OK [UIDVALIDITY %d] UIDs valid" % self.validity
                return [b"* %d EXISTS" % len(self.mails), b"* FLAGS ()", validity], b"OK [READ-ONLY] done"
            case "SEARCH":
                return [b" ".join([b"* SEARCH", *(b"%d" % uid for uid in self.mails)])], b"OK done"
            case "FETCH":
                return self._fetched(rest)
            case "LOGOUT":
                return [b"* BYE"], b"OK done"
        return [], b"BAD what?"

    def _fetched(self, rest: bytes) -> tuple[list[bytes], bytes] | None:
        if self.faults:
            fault = self.faults.popleft()
            return None if fault == "drop" else ([], f"NO {fault}".encode())
        uid = int(rest.split()[0])
        raw = self.mails.get(uid)
        if raw is None:
            return [], b"OK done"  # RFC 3501 section 6.4.8: a UID that is not there is ignored
        # RFC 3501 section 6.4.5: <0.N> asks for the first N octets.
        cut = _PARTIAL.search(rest)
        raw = raw if cut is None else raw[: int(cut[1])]
        return [b"* 1 FETCH (UID %d BODY[]<0> {%d}\r\n%s)" % (uid, len(raw), raw)], b"OK done"


def _handler_of(server: ImapServer) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        timeout = 30

        def handle(self) -> None:
            self.wfile.write(b"* OK IMAP4rev1 ready\r\n")
            while (found := _COMMAND.fullmatch(line := self.rfile.readline())) is not None:
                server.lines.append(line)
                tag, _, verb, rest = found.groups()
                server.commands.append(verb.decode().upper())
                answer = server.answer(verb.decode().upper(), rest)
                if answer is None:
                    return
                lines, end = answer
                self.wfile.write(b"".join(line + b"\r\n" for line in lines) + tag + b" " + end + b"\r\n")

    return Handler
