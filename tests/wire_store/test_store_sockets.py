# SPDX-License-Identifier: Apache-2.0
"""The standard library over real sockets: plain, TLS, names, http.client, urllib and asyncio streams."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
import trustme

from redrive.core.failure import Failure
from redrive.engine.classifier import classify
from tests.wire_store.catching import failure_awaited, failure_of, raised_by
from tests.wire_store.sockets import Listener, Talk, hang_up, saying, securing


def talk(port: int, *, host: str = "127.0.0.1", timeout: float = 5) -> bytes:
    """Connect, say something and wait for an answer until one comes; an orderly end is none."""
    with socket.create_connection((host, port), timeout=timeout) as connection:
        connection.sendall(b"hello")
        return connection.recv(1)


def secure(port: int, context: ssl.SSLContext, *, read: bool = True) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as secured:
            secured.sendall(b"hello")
            if read and not secured.recv(1):
                raise ConnectionResetError


@pytest.fixture
def serve() -> Iterator[Callable[[Talk], int]]:
    """Start a server for the length of a test; gives its port."""
    listeners: list[Listener] = []

    def start(what: Talk) -> int:
        listeners.append(Listener(what))
        return listeners[-1].port

    yield start
    for listener in listeners:
        listener.close()


@pytest.mark.req("CR-1.1")
def test_a_closed_port_refuses(closed_port: int) -> None:
    failure = failure_of(talk, closed_port)

    assert (failure.code, failure.retryable, failure.is_reachability) == ("NETWORK_REFUSED", True, True)


@pytest.mark.req("CR-1.1")
def test_a_tcp_reset_is_a_reset(resetting_port: int) -> None:
    failure = failure_of(talk, resetting_port)

    assert (failure.code, failure.retryable) == ("NETWORK_RESET", True)


@pytest.mark.req("CR-1.1")
def test_a_socket_that_stays_silent_is_a_network_timeout(silent_port: int) -> None:
    failure = failure_of(talk, silent_port, timeout=0.05)

    assert (failure.code, failure.retryable) == ("NETWORK_TIMEOUT", True)


@pytest.mark.req("CR-1.1")
def test_a_name_that_does_not_resolve_heals() -> None:
    failure = failure_of(talk, 80, host="nohost.invalid")

    assert (failure.code, failure.retryable) == ("NETWORK_DNS", True)


def test_a_port_name_that_does_not_exist_is_a_bug_and_not_a_matter_of_names() -> None:
    assert failure_of(socket.getaddrinfo, "localhost", "no-such-service").code == "BUG_CODE"


def test_a_port_that_is_taken_frees_itself(closed_port: int) -> None:
    failure = failure_of(socket.create_server, ("127.0.0.1", closed_port))

    assert (failure.code, failure.retryable) == ("RESOURCE_EXHAUSTED", True)


def test_a_message_too_long_for_a_datagram_is_too_large(closed_port: int) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        assert (
            failure_of(datagrams.sendto, b"x" * 100_000, ("127.0.0.1", closed_port)).code
            == "REQUEST_TOO_LARGE"
        )


def test_writing_to_a_socket_that_is_not_connected_or_closed_is_told_apart() -> None:
    with socket.socket() as lonely:
        assert failure_of(lonely.send, b"x").code == "NETWORK_RESET"
    assert failure_of(lonely.send, b"x").code == "BUG_CODE"


def test_a_certificate_of_an_unknown_authority_is_not_retried(
    serve: Callable[[Talk], int], server_tls: ssl.SSLContext
) -> None:
    failure = failure_of(secure, serve(securing(server_tls)), ssl.create_default_context())

    assert (failure.code, failure.retryable) == ("TLS_CERTIFICATE", False)


def test_a_certificate_for_another_name_is_not_retried(
    serve: Callable[[Talk], int], authority: trustme.CA
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("other.example").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    assert failure_of(secure, serve(securing(context)), trusting).code == "TLS_CERTIFICATE"


def test_a_server_without_tls_is_a_tls_failure_that_may_heal(serve: Callable[[Talk], int]) -> None:
    failure = failure_of(
        secure, serve(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n")), ssl.create_default_context()
    )

    assert (failure.code, failure.retryable) == ("NETWORK_TLS", True)


def test_a_server_that_hangs_up_during_the_handshake_is_a_reset(serve: Callable[[Talk], int]) -> None:
    assert failure_of(secure, serve(hang_up), ssl.create_default_context()).code == "NETWORK_RESET"


@pytest.mark.req("CR-1.6")
def test_a_server_that_wants_a_certificate_we_do_not_have_refuses_our_credentials(
    serve: Callable[[Talk], int], authority: trustme.CA
) -> None:
    demanding = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(demanding)
    authority.configure_trust(demanding)
    demanding.verify_mode = ssl.CERT_REQUIRED
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    port = serve(securing(demanding))

    without = failure_of(secure, port, trusting)
    trustme.CA().issue_cert("client").configure_cert(trusting)
    with_a_strangers = failure_of(secure, port, trusting)

    assert (without.code, without.retryable) == ("AUTH_INVALID", False)
    assert (with_a_strangers.code, with_a_strangers.retryable) == ("AUTH_INVALID", False)


def get(port: int, path: str = "/") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(b"garbage\r\n\r\n", "NETWORK_PROTOCOL", id="no http"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", "NETWORK_PROTOCOL", id="cut short"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", "NETWORK_PROTOCOL", id="too many headers"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", "NETWORK_PROTOCOL", id="line too long"
        ),
    ],
)
def test_http_answers_that_make_no_sense_heal(serve: Callable[[Talk], int], answer: bytes, code: str) -> None:
    failure = failure_of(get, serve(saying(answer)))

    assert (failure.code, failure.retryable) == (code, True)


def test_an_http_server_that_hangs_up_is_a_reset(serve: Callable[[Talk], int]) -> None:
    assert failure_of(get, serve(hang_up)).code == "NETWORK_RESET"


def test_a_url_that_is_none_is_not_retried(closed_port: int) -> None:
    assert failure_of(get, closed_port, "/with space").code == "CONFIG_INVALID"
    assert failure_of(urllib.request.urlopen, "gopher://127.0.0.1/").code == "CONFIG_INVALID"
    assert failure_of(urllib.request.urlopen, "http:///nohost").code == "CONFIG_INVALID"


def test_http_client_used_out_of_order_is_a_bug() -> None:
    connection = http.client.HTTPConnection("127.0.0.1", 9)

    assert failure_of(connection.getresponse).code == "BUG_CODE"
    assert failure_of(connection.endheaders).code == "BUG_CODE"


def opened(port: int, *, host: str = "127.0.0.1", timeout: float = 5) -> Failure:
    return failure_of(urllib.request.urlopen, f"http://{host}:{port}/", timeout=timeout)


def test_urllib_keeps_the_real_failure_as_its_reason(
    closed_port: int, silent_port: int, resetting_port: int, closing_port: int
) -> None:
    assert opened(closed_port).code == "NETWORK_REFUSED"
    assert opened(silent_port, timeout=0.05).code == "NETWORK_TIMEOUT"
    assert opened(resetting_port).code == "NETWORK_RESET"
    assert opened(closing_port).code == "NETWORK_RESET"
    assert opened(80, host="nohost.invalid").code == "NETWORK_DNS"
    assert failure_of(urllib.request.urlopen, "file:///no/such/file").code == "IO_NOT_FOUND"


def test_urllib_and_a_certificate_of_an_unknown_authority(
    serve: Callable[[Talk], int], server_tls: ssl.SSLContext
) -> None:
    url = f"https://localhost:{serve(securing(server_tls))}/"

    assert failure_of(urllib.request.urlopen, url, timeout=5).code == "TLS_CERTIFICATE"


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (404, "NOT_FOUND", False),
        (401, "AUTH_INVALID", False),
        (429, "RATE_LIMITED", True),
        (503, "NETWORK_UNAVAILABLE", True),
    ],
)
def test_urllibs_http_error_is_read_by_status_and_headers_and_its_body_is_left_alone(
    serve: Callable[[Talk], int], status: int, code: str, retryable: bool
) -> None:
    answer = f"HTTP/1.1 {status} X\r\nretry-after: 7\r\nx-request-id: r-1\r\ncontent-length: 4\r\n\r\nbody".encode()

    exc = raised_by(urllib.request.urlopen, f"http://127.0.0.1:{serve(saying(answer))}/", timeout=5)
    assert isinstance(exc, urllib.error.HTTPError)
    with exc:
        failure = classify(exc)
        body = exc.read()

    assert (failure.code, failure.retryable, failure.http_status) == (code, retryable, status)
    assert (failure.retry_after, failure.request_id) == (7.0, "r-1")
    assert body == b"body"


def streaming(port: int, read: str, *args: object, limit: float | None = None) -> Failure:
    async def run() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        try:
            writer.write(b"hello")
            await asyncio.wait_for(getattr(reader, read)(*args), limit)
        finally:
            writer.close()

    async def outcome() -> Failure:
        return await failure_awaited(run())

    return asyncio.run(outcome())


def test_asyncio_that_tried_several_addresses_in_vain_says_so_without_a_number(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> Failure:
        async def two_addresses(*_args: object, **_options: object) -> list[object]:
            kinds = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kinds, ("127.0.0.1", closed_port)), (*kinds, ("127.0.0.2", closed_port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", two_addresses)
        return await failure_awaited(asyncio.open_connection("two.example", closed_port))

    failure = asyncio.run(run())

    assert failure.message.startswith("Multiple exceptions: ")
    assert (failure.code, failure.is_reachability) == ("NETWORK_REFUSED", True)


def test_a_proxy_that_refuses_a_tunnel_says_so_without_a_number(serve: Callable[[Talk], int]) -> None:
    def through(answer: bytes) -> Failure:
        proxy = urllib.request.ProxyHandler({"https": f"http://127.0.0.1:{serve(saying(answer))}"})
        return failure_of(urllib.request.build_opener(proxy).open, "https://service.example/", timeout=5)

    assert through(b"HTTP/1.1 503 Busy\r\n\r\n").code == "NETWORK_PROXY"
    assert through(b"HTTP/1.1 407 Who are you?\r\n\r\n").code == "AUTH_INVALID"


def test_asyncio_streams(
    closed_port: int, silent_port: int, closing_port: int, serve: Callable[[Talk], int]
) -> None:
    assert streaming(closed_port, "read").code == "NETWORK_REFUSED"
    assert streaming(silent_port, "read", limit=0.05).code == "TIMEOUT"
    assert streaming(closing_port, "readexactly", 10).code == "NETWORK_PROTOCOL"
    assert streaming(serve(saying(b"x" * 5000)), "readuntil", b"\n").code == "SCHEMA_INVALID"
