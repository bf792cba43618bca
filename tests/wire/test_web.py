# SPDX-License-Identifier: Apache-2.0
"""The parts of web services over real connections: event streams, clients that leave, servers that end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from redrive.web import Problem, ServerEvent, event_response, install_problems, read_limited

SECONDS = 20.0


@contextmanager
def served(app: FastAPI) -> Generator[str]:
    """Serve on a free port, in a thread."""
    install_problems(app, unexpected=Problem.of_status(500))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    started = threading.Event()
    plain = server.startup

    async def startup(sockets: object = None) -> None:
        await plain()
        started.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(SECONDS)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


Source = Callable[[str], AsyncGenerator[ServerEvent]]


def streaming(source: Source, keep_alive: float = 15.0) -> FastAPI:
    app = FastAPI()

    @app.get("/events")
    async def events(request: Request) -> Response:
        return event_response(request, source, keep_alive=keep_alive)

    return app


def test_events_arrive_as_they_are_sent_and_continue_after_the_last_one_received() -> None:
    async def count(last: str) -> AsyncGenerator[ServerEvent]:
        for number in range(int(last or 0) + 1, 4):
            yield ServerEvent({"n": number, "text": "two\nlines"}, "count", str(number))

    with served(streaming(count)) as url:
        first = httpx.get(f"{url}/events")
        later = httpx.get(f"{url}/events", headers={"Last-Event-ID": "2"})

    assert first.headers["content-type"].startswith("text/event-stream")
    assert first.text.count("event: count\n") == 3
    assert later.text == ': connected\n\nid: 3\nevent: count\ndata: {"n":3,"text":"two\\nlines"}\n\n'


def test_an_id_that_no_event_can_have_is_ignored() -> None:
    async def echo(last: str) -> AsyncGenerator[ServerEvent]:
        yield ServerEvent(last)

    with served(streaming(echo)) as url:
        answer = httpx.get(f"{url}/events", headers={"Last-Event-ID": "x" * 200})

    assert answer.text.endswith('event: message\ndata: ""\n\n')


def test_silence_is_filled_with_comments_and_the_source_ends_when_the_client_leaves() -> None:
    closed = threading.Event()

    async def silent(_last: str) -> AsyncGenerator[ServerEvent]:
        try:
            await asyncio.Event().wait()
            yield ServerEvent("never")
        finally:
            closed.set()

    with served(streaming(silent, keep_alive=0.01)) as url:
        with httpx.stream("GET", f"{url}/events") as answer:
            text = ""
            for chunk in answer.iter_text():
                text += chunk
                if text.count(": keep-alive\n\n") >= 2:
                    break

        assert closed.wait(SECONDS)


def test_a_source_that_fails_cuts_the_connection_so_that_the_client_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(_last: str) -> AsyncGenerator[ServerEvent]:
        yield ServerEvent("first")
        raise LookupError("nothing more")

    with served(streaming(broken)) as url, pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{url}/events")

    assert "nothing more" in caplog.text


def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    left = threading.Event()
    app = FastAPI()

    @app.post("/")
    async def take(request: Request) -> Response:
        try:
            await read_limited(request, 1000)
        finally:
            left.set()
        return Response()

    def half() -> Generator[bytes]:
        yield b"x"
        raise KeyError

    with served(app) as url:
        with pytest.raises(KeyError):
            httpx.post(url, content=half(), headers={"Content-Length": "100"})
        assert left.wait(SECONDS)

    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


PROGRAM = """
import asyncio, sys
from fastapi import FastAPI, Request
from redrive.web import ServerEvent, event_response, serve

app = FastAPI()

@app.get("/events")
async def events(request: Request):
    async def silent(last):
        yield ServerEvent("first")
        await asyncio.Event().wait()
    return event_response(request, silent)

serve(app, port=0, on_ready=lambda host, port: print(f"http://{host}:{port}", flush=True))
print("ended", flush=True)
"""


@pytest.mark.traced_programs
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_at_a_signal_although_a_stream_is_open(number: int) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.stream("GET", f"{url}/events", timeout=SECONDS) as answer:
            lines = answer.iter_lines()
            while next(lines) != 'data: "first"':
                pass
            process.send_signal(number)
            rest = list(lines)

        assert rest == [""]
        assert process.stdout.readline() == "ended\n"
        assert process.wait(SECONDS) == 0
