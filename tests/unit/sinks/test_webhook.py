# SPDX-License-Identifier: Apache-2.0
"""The webhook: a real server on loopback that fails in every way a server can, and then takes the letter."""

from __future__ import annotations

import hashlib
import hmac
import json
import pickle
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from redrive import redact
from redrive.errors import ConfigurationError
from redrive.sinks import BreakerChange, Webhook
from redrive.sinks.webhook import WebhookRefusedError

from .test_files import letter

SECRET = "a-signing-secret-nobody-may-see"


@dataclass
class Site:
    """A server that answers each request by the next of its acts, and then with 204."""

    acts: list[object] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/very-secret-path?token=in-the-address"


def handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            site.seen.append((self.path, dict(self.headers), body))
            act = site.acts.pop(0) if site.acts else 204
            if callable(act):
                act(self)
            elif isinstance(act, int):
                self.send_response(act)
                if 300 <= act < 400:
                    self.send_header("Location", f"http://localhost:{site.port}/elsewhere")
                self.end_headers()

        def log_message(self, *_parts: object) -> None:
            pass

    return Handler


@pytest.fixture
def site() -> Generator[Site]:
    made = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(made))
    server.daemon_threads = True
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_letter_is_posted_with_the_same_key_each_time(site: Site) -> None:
    sink = Webhook(site.url, headers={"X-Team": "shop"})
    sink.deliver(letter())
    sink.deliver(letter())

    (path, headers, body), (_, again, _) = site.seen
    assert path == "/hooks/very-secret-path?token=in-the-address"
    assert headers["Idempotency-Key"] == again["Idempotency-Key"] == "abc-7-1-1"
    assert (headers["Content-Type"], headers["X-Team"]) == ("application/json", "shop")
    assert json.loads(body)["job_id"] == 7
    assert "payload" not in json.loads(body)
    assert "Redrive-Signature" not in headers


def test_each_change_of_a_letter_is_posted_with_a_key_of_its_own(site: Site) -> None:
    sink = Webhook(site.url)
    sink.deliver(letter())
    sink.deliver(letter(delivery="abc-7-1-2", event="resolved", state="resolved"))

    assert [headers["Idempotency-Key"] for _, headers, _ in site.seen] == ["abc-7-1-1", "abc-7-1-2"]
    assert [json.loads(body)["event"] for *_, body in site.seen] == ["born", "resolved"]


def test_a_change_of_a_breaker_is_posted_signed_and_with_its_key(site: Site) -> None:
    change = BreakerChange(
        delivery="abc-breaker-1",
        sent_at=letter().sent_at,
        breaker="bank",
        before="closed",
        after="open",
        at=letter().sent_at,
        cause="failures",
        code="NETWORK_TIMEOUT",
        actor="w1",
        reason=None,
        sentence="too many calls failed",
    )
    Webhook(site.url, secret="a long enough secret").deliver_breaker(change)

    ((_, headers, body),) = site.seen
    assert (headers["Idempotency-Key"], "Redrive-Signature" in headers) == ("abc-breaker-1", True)
    posted = json.loads(body)
    assert (posted["event"], posted["breaker"], posted["after"]) == ("breaker", "bank", "open")


def test_a_payload_goes_along_only_when_there_is_one(site: Site) -> None:
    Webhook(site.url, payload="include").deliver(letter(payload=[1]))

    assert json.loads(site.seen[0][2])["payload"] == [1]


def test_an_input_goes_along_only_when_there_is_one(site: Site) -> None:
    Webhook(site.url, input="redacted").deliver(letter(input={"a": 1}))
    Webhook(site.url).deliver(letter())

    assert [json.loads(body).get("input") for _, _, body in site.seen] == [{"a": 1}, None]


def test_a_signature_can_be_checked_with_the_secret(site: Site) -> None:
    Webhook(site.url, secret=SECRET).deliver(letter())

    _, headers, body = site.seen[0]
    signed = headers["Redrive-Timestamp"].encode() + b"." + body
    assert (
        headers["Redrive-Signature"]
        == "sha256=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    )


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def nonsense(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"this is no HTTP\r\n\r\n")


@pytest.mark.parametrize("act", [500, 503, 429, 404, 400, 301, 302, 307, 308, hang_up, nonsense])
def test_whatever_is_no_2xx_was_not_taken_and_the_next_time_it_is(site: Site, act: object) -> None:
    site.acts.append(act)
    sink = Webhook(site.url)

    with pytest.raises(WebhookRefusedError) as refused:
        sink.deliver(letter())
    sink.deliver(letter())

    assert [path for path, _, _ in site.seen] == ["/hooks/very-secret-path?token=in-the-address"] * 2
    assert "very-secret-path" not in str(refused.value)
    assert "in-the-address" not in str(refused.value)
    assert refused.value.__cause__ is None


def slow(site: Site) -> Callable[[BaseHTTPRequestHandler], object]:
    return lambda _handler: site.released.wait(20)


def trickling(site: Site) -> Callable[[BaseHTTPRequestHandler], None]:
    """Send a byte now and then, each well within any timeout of a single step."""

    def act(handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            while not site.released.wait(0.05):
                handler.wfile.write(b"H")
                handler.wfile.flush()

    return act


def hesitant(site: Site) -> Callable[[BaseHTTPRequestHandler], None]:
    """Say 200, begin the headers, and never end them."""

    def act(handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not site.released.wait(0.05):
                handler.wfile.write(b"X-More: yes\r\n")
                handler.wfile.flush()

    return act


@pytest.mark.parametrize("make", [slow, trickling, hesitant])
def test_a_server_that_takes_too_long_is_left(site: Site, make: Callable[[Site], object]) -> None:
    site.acts.append(make(site))
    sink = Webhook(site.url, timeout=0.3)

    with pytest.raises(WebhookRefusedError, match="TimeoutError"):
        sink.deliver(letter())
    site.released.set()
    sink.deliver(letter())
    assert len(site.seen) == 2


def test_nobody_there_is_said_without_the_address() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with pytest.raises(WebhookRefusedError, match="Connection refused") as refused:
            Webhook(f"http://127.0.0.1:{port}/secret-path").deliver(letter())
    assert "secret-path" not in repr(refused.value)


def test_a_server_without_tls_is_refused_when_https_was_asked_for(site: Site) -> None:
    with pytest.raises(WebhookRefusedError, match="SSLError"):
        Webhook(site.url.replace("http:", "https:")).deliver(letter())
    assert site.seen == []


def test_a_refusal_survives_pickling_and_an_unknown_host_is_one() -> None:
    with pytest.raises(WebhookRefusedError, match="gaierror") as refused:
        Webhook("http://nowhere.invalid/secret-path").deliver(letter())

    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.host) == (str(refused.value), "http://nowhere.invalid/...")


def test_secrets_are_hidden_in_every_text_from_then_on() -> None:
    sink = Webhook(
        "https://example.org/path-of-its-own",
        secret="kdhf8h3498fhskjdhf",
        headers={"Authorization": "Bearer ieuwyr8734hfkjs", "Accept": "text/plain"},
    )

    told = redact("kdhf8h3498fhskjdhf, then ieuwyr8734hfkjs, then text/plain")
    assert ("kdhf8" in told, "ieuwyr" in told, "text/plain" in told) == (False, False, True)
    assert repr(sink) == "Webhook('https://example.org/...', name='webhook', payload='exclude')"


@pytest.mark.parametrize(
    ("url", "options", "field"),
    [
        ("ftp://example.org/x", {}, "url"),
        ("file:///etc/passwd", {}, "url"),
        ("example.org/x", {}, "url"),
        ("http://", {}, "url"),
        ("http://user:hunter2@example.org/", {}, "url"),
        ("http://example.org:99999/", {}, "url"),
        ("http://example.org/a b", {}, "url"),
        ("http://example.org/a\r\nX: y", {}, "url"),
        ("http://exämple.org/", {}, "url"),
        (None, {}, "url"),
        ("http://example.org", {"secret": "short"}, "secret"),
        ("http://example.org", {"secret": 12345678}, "secret"),
        ("http://example.org", {"headers": {"idempotency-key": "x"}}, "headers"),
        ("http://example.org", {"headers": {"X": "a\r\nY: b"}}, "headers"),
        ("http://example.org", {"headers": {"X y": "a"}}, "headers"),
        ("http://example.org", {"headers": {"X": 3}}, "headers"),
        ("http://example.org", {"timeout": 0}, "timeout"),
        ("http://example.org", {"timeout": 26}, "timeout"),
        ("http://example.org", {"payload": "maybe"}, "payload"),
        ("http://example.org", {"input": "maybe"}, "input"),
    ],
)
def test_what_can_not_work_is_refused_when_it_is_made_and_no_secret_is_shown(
    url: str, options: dict[str, object], field: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Webhook(url, **options)  # type: ignore[arg-type]

    assert refused.value.field == f"Webhook(webhook).{field}"
    assert not {"hunter2", "12345678", "short"} & set(str(refused.value).replace("'", " ").split())
