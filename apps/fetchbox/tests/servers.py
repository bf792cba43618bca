# SPDX-License-Identifier: Apache-2.0
"""Servers that FetchBox meets: an origin with faults, forward proxies, an S3 API with faults in front of a real one, a broker."""

from __future__ import annotations

import http.client
import http.server
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

READY_SECONDS = 30.0
LARGE = bytes(range(256)) * 8_192
"""Two megabytes."""


class Server:
    """A threaded HTTP server on loopback that counts requests by path."""

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self.requests: Counter[str] = Counter()
        self.headers: list[tuple[str, dict[str, str]]] = []
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.http.owner = self  # type: ignore[attr-defined]
        self.port: int = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


class Quiet(http.server.BaseHTTPRequestHandler):
    """Answers without a log; knows its server."""

    protocol_version = "HTTP/1.1"

    @property
    def owner(self) -> Any:
        return self.server.owner  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name.
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _OriginHandler(Quiet):
    def do_GET(self) -> None:
        origin: Origin = self.owner
        path = urlsplit(self.path).path
        origin.requests[path] += 1
        origin.headers.append((path, {name.lower(): value for name, value in self.headers.items()}))
        kind, _, rest = path.strip("/").partition("/")
        script = getattr(self, f"on_{kind}", None)
        if script is None:
            self.answer(404)
        else:
            script(rest, origin.requests[path])

    def on_file(self, rest: str, _seen: int) -> None:
        self.answer(200, rest.encode() * 100, Content_Type="text/plain")

    def on_status(self, rest: str, _seen: int) -> None:
        self.answer(int(rest.partition("/")[0]))

    def on_flaky(self, rest: str, seen: int) -> None:
        """Fail as often as the path says, then answer."""
        status, times = rest.split("/")[:2]
        self.answer(int(status) if seen <= int(times) else 200, b"at last")

    def on_slow(self, rest: str, _seen: int) -> None:
        """Send the headers and never the body; the client gives up."""
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.owner.closing.wait(READY_SECONDS)

    def on_broken(self, rest: str, seen: int) -> None:
        """Break off in the middle; continue where the client asks for it, if the path allows that."""
        begin = 0
        asked = self.headers.get("Range", "")
        if rest.startswith("resumable") and asked:
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(LARGE) - 1}/{len(LARGE)}")
        else:
            self.send_response(200)
        if rest.startswith("resumable"):
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", '"v1"')
        self.send_header("Content-Length", str(len(LARGE) - begin))
        self.end_headers()
        end = len(LARGE) // 2 if seen == 1 else len(LARGE)
        self.wfile.write(LARGE[begin:end])
        self.close_connection = True

    def on_large(self, rest: str, _seen: int) -> None:
        self.answer(200, LARGE * 4)

    def on_endless(self, rest: str, _seen: int) -> None:
        """Send chunks without an end, as long as somebody reads them."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        except OSError:
            self.close_connection = True

    def on_answer(self, rest: str, _seen: int) -> None:
        """Answer what the origin was told for this path; the last answer again and again."""
        answers = self.owner.answers[rest]
        status, body, headers = answers.pop(0) if len(answers) > 1 else answers[0]
        self.answer(status, body, **headers)

    def on_to(self, rest: str, _seen: int) -> None:
        """Redirect to the place that the origin was told."""
        self.answer(302, Location=self.owner.places[rest])


class Origin(Server):
    """An origin with faults: the path says which."""

    def __init__(self) -> None:
        super().__init__(_OriginHandler)
        self.places: dict[str, str] = {}
        self.answers: dict[str, list[tuple[int, bytes, dict[str, str]]]] = {}
        self.closing = threading.Event()

    def close(self) -> None:
        self.closing.set()
        super().close()

    def seen(self, path: str) -> list[dict[str, str]]:
        """Return the headers of each request for a path."""
        return [headers for where, headers in self.headers if where == path]


class _S3Handler(Quiet):
    def _forward(self) -> None:
        front: S3Front = self.owner
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        front.requests[f"{self.command} {path}"] += 1
        for start, faults in front.faults.items():
            if path.startswith(start) and faults and self.command in {"PUT", "POST"}:
                status, code = faults[0] if faults[0][0] < 0 else faults.pop(0)
                text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>"
                self.answer(abs(status), text.encode(), Content_Type="application/xml")
                return
        connection = http.client.HTTPConnection("127.0.0.1", front.behind, timeout=READY_SECONDS)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        found = connection.getresponse()
        content = found.read()
        self.send_response(found.status)
        for name, value in found.getheaders():
            if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                self.send_header(name, value)
        length = found.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)
        connection.close()


for _method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
    setattr(_S3Handler, f"do_{_method}", _S3Handler._forward)


class S3Front(Server):
    """Stands in front of a real S3 API and answers with scripted errors first; a negative status is answered for ever."""

    def __init__(self, behind: int) -> None:
        super().__init__(_S3Handler)
        self.behind = behind
        self.faults: dict[str, list[tuple[int, str]]] = {}


PROXY = """
import http.client, http.server, sys
from urllib.parse import urlsplit
NAME, MODE = sys.argv[1:]
class Forward(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_GET(self):
        where = urlsplit(self.path)
        if MODE == "broken":
            self.send_error(502); return
        connection = http.client.HTTPConnection(where.hostname, where.port or 80, timeout=30)
        headers = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy")}
        connection.request("GET", where.path, headers={**headers, "Via": NAME})
        found = connection.getresponse(); body = found.read()
        self.send_response(found.status); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forward)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


class Process:
    """A program whose first line tells that it is ready."""

    def __init__(
        self, command: list[str], environment: dict[str, str] | None = None, log: Path | None = None
    ) -> None:
        self._log = None if log is None else log.open("ab")
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        assert self.line, log.read_text() if log else command

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(READY_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        if self._log is not None:
            self._log.close()


def proxy(name: str, mode: str = "good") -> Process:
    """Start a forward proxy; its first line is its port."""
    return Process([sys.executable, "-c", PROXY, name, mode])


class Broker:
    """A real nats-server with JetStream; it keeps its port and its messages when it is stopped and started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = -1
        self.start()

    def start(self) -> None:
        program = Path(sys.executable).with_name("nats-server")
        options = ["-a", "127.0.0.1", "-p", str(self._port), "-js", "-sd", str(self._folder)]
        options += ["--ports_file_dir", str(self._folder), "-l", str(self._folder / "log")]
        self._process = subprocess.Popen([str(program), *options])
        ports = self._folder / f"{program.name}_{self._process.pid}.ports"
        self.url = str(waited(lambda: json.loads(ports.read_text())["nats"][0]))
        self._port = int(self.url.rpartition(":")[2])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(READY_SECONDS)


def waited(what: Callable[[], Any], seconds: float = READY_SECONDS) -> Any:
    """Return what a function returns once that is true; errors of files and connections mean that it is not yet."""
    give_up_at = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        try:
            found = what()
        except (OSError, ValueError, KeyError) as error:
            found = None
            last: object = error
        else:
            last = found
        if found:
            return found
        if time.monotonic() > give_up_at:
            raise TimeoutError(str(last))
        pause.wait(0.02)
