# SPDX-License-Identifier: Apache-2.0
"""What goes wrong between a client and a server, produced on a real socket, means the same whichever client ran into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import httpx
import pytest
import requests
import urllib3

from redrive.core.failure import Category
from redrive.engine.classifier import classify
from tests.wire import server
from tests.wire.clients import CLIENTS, HASTY_S, PATIENT_S, Call, failure_of
from tests.wire.server import Certificates, Refusing, Serve

RESET = frozenset({"NETWORK_RESET"})
BROKEN = frozenset({"NETWORK_RESET", "NETWORK_PROTOCOL"})
"""Where a connection ends in the middle of an answer, clients see its end or the missing rest, whichever comes first."""


@dataclass(frozen=True)
class Scenario:
    behave: server.Behaviour
    codes: frozenset[str]
    timeout: float = PATIENT_S


SCENARIOS = {
    "reset before an answer": Scenario(server.reset, RESET),
    "closed before an answer": Scenario(server.disconnect, BROKEN),
    "reset in a body": Scenario(server.reset_body, BROKEN),
    "closed in a body": Scenario(server.truncated_body, frozenset({"NETWORK_PROTOCOL"})),
    "closed in a chunk": Scenario(server.truncated_chunk, frozenset({"NETWORK_PROTOCOL"})),
    "no http": Scenario(server.garbage, frozenset({"NETWORK_PROTOCOL"})),
    "no answer": Scenario(server.silence, frozenset({"NETWORK_TIMEOUT"}), HASTY_S),
    "no end of the body": Scenario(server.stalled_body, frozenset({"NETWORK_TIMEOUT"}), HASTY_S),
}


@pytest.fixture(params=CLIENTS)
def get(request: pytest.FixtureRequest) -> Callable[[Call], None]:
    return CLIENTS[request.param]


@pytest.mark.untraced
@pytest.mark.req("CR-1.1")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_connection_that_fails_is_a_network_failure_and_heals(
    get: Callable[[Call], None], serve: Serve, name: str
) -> None:
    scenario = SCENARIOS[name]

    failure = classify(failure_of(get, Call(serve(scenario.behave).url + "/x", timeout=scenario.timeout)))

    assert failure.code in scenario.codes
    assert (failure.category, failure.retryable, failure.http_status) == (Category.NETWORK, True, None)
    assert failure.is_reachability


@pytest.mark.req("CR-1.1")
def test_a_refused_connection_heals(get: Callable[[Call], None], refusing: Refusing) -> None:
    failure = classify(failure_of(get, Call(refusing.url)))

    assert (failure.code, failure.retryable) == ("NETWORK_REFUSED", True)


@pytest.mark.req("CR-1.1")
def test_a_name_that_does_not_resolve_heals(get: Callable[[Call], None]) -> None:
    failure = classify(failure_of(get, Call("http://nowhere.invalid/")))

    assert (failure.code, failure.retryable) == ("NETWORK_DNS", True)


@pytest.mark.untraced
@pytest.mark.parametrize("which", ["untrusted", "wrong_host", "expired"])
def test_a_certificate_that_cannot_be_trusted_does_not_heal(
    get: Callable[[Call], None], serve: Serve, certificates: Certificates, which: str
) -> None:
    listener = serve(server.answer(200, b"ok"), tls=getattr(certificates, which))

    failure = classify(failure_of(get, Call(listener.url, ca_file=certificates.trusted_pem)))

    assert (failure.code, failure.category, failure.retryable) == ("TLS_CERTIFICATE", Category.BUG, False)


def test_a_good_certificate_is_no_failure(
    get: Callable[[Call], None], serve: Serve, certificates: Certificates
) -> None:
    listener = serve(server.answer(200, b"ok"), tls=certificates.good)

    get(Call(listener.url, ca_file=certificates.trusted_pem))


@pytest.mark.req("CR-1.1")
def test_a_server_without_tls_on_a_tls_port_is_tls_trouble_that_may_heal(
    get: Callable[[Call], None], serve: Serve
) -> None:
    listener = serve(server.answer(400, b"plain"))

    failure = classify(failure_of(get, Call(listener.url.replace("http:", "https:"))))

    assert (failure.code, failure.retryable) == ("NETWORK_TLS", True)


def test_a_proxy_that_refuses_the_tunnel_is_the_proxys_failure(
    get: Callable[[Call], None], serve: Serve
) -> None:
    proxy = serve(server.answer(403, b"no"))

    failure = classify(failure_of(get, Call("https://nowhere.invalid/", proxy=proxy.url)))

    assert (failure.code, failure.retryable, failure.is_reachability) == ("NETWORK_PROXY", True, True)


@pytest.mark.req("CR-1.6")
def test_a_proxy_that_wants_other_credentials_does_not_heal(
    get: Callable[[Call], None], serve: Serve
) -> None:
    proxy = serve(server.answer(407, b"who are you"))

    failure = classify(failure_of(get, Call("https://nowhere.invalid/", proxy=proxy.url)))

    assert (failure.code, failure.retryable) == ("AUTH_INVALID", False)


@pytest.mark.untraced
def test_a_redirect_loop_fails_at_once(get: Callable[[Call], None], serve: Serve) -> None:
    failure = classify(failure_of(get, Call(serve(server.redirect_loop).url + "/x")))

    assert (failure.code, failure.retryable) == ("REQUEST_INVALID", False)


@pytest.mark.req("CR-1.9")
@pytest.mark.parametrize("url", ["foo://127.0.0.1/", "http://", "http://[::1"])
def test_an_address_that_is_none_is_a_wrong_setting_and_fails_at_once(
    get: Callable[[Call], None], url: str
) -> None:
    failure = classify(failure_of(get, Call(url)))

    assert (failure.code, failure.category, failure.retryable) == ("CONFIG_INVALID", Category.BUG, False)


@pytest.mark.req("CR-1.5")
def test_a_body_that_does_not_decompress_does_not_heal(get: Callable[[Call], None], serve: Serve) -> None:
    failure = classify(failure_of(get, Call(serve(server.broken_gzip).url)))

    assert (failure.code, failure.retryable) == ("SCHEMA_INVALID", False)


@pytest.mark.req("CR-1.5")
def test_a_json_answer_that_is_none_does_not_heal(serve: Serve) -> None:
    address = serve(server.answer(200, b"<html>")).url

    with pytest.raises(requests.JSONDecodeError) as raised:
        requests.get(address, timeout=PATIENT_S).json()

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("SCHEMA_INVALID", False)


def test_waiting_for_a_connection_of_our_own_pool_is_our_lack_of_capacity(serve: Serve) -> None:
    stalling = serve(server.stalled_body).url
    limits, timeout = httpx.Limits(max_connections=1), httpx.Timeout(PATIENT_S, pool=0.01)
    with (
        httpx.Client(limits=limits, timeout=timeout, trust_env=False) as client,
        client.stream("GET", stalling),
    ):
        with pytest.raises(httpx.PoolTimeout) as raised:
            client.get(stalling)

    failure = classify(raised.value)

    assert (failure.code, failure.category, failure.is_reachability) == (
        "RESOURCE_EXHAUSTED",
        Category.CAPACITY,
        False,
    )


def test_an_empty_urllib3_pool_is_our_lack_of_capacity(serve: Serve) -> None:
    listener = serve(server.answer(200, b"ok"))
    with urllib3.HTTPConnectionPool("127.0.0.1", listener.port, maxsize=1, block=True) as pool:
        taken = pool._get_conn()
        with pytest.raises(urllib3.exceptions.EmptyPoolError) as raised:
            pool.request("GET", "/", pool_timeout=0.01, retries=False)
        pool._put_conn(taken)

    assert classify(raised.value).code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("settled", [False, True])
def test_urllib3_giving_up_on_a_status_keeps_the_status(serve: Serve, settled: bool) -> None:
    listener = serve(server.answer(503, b"busy"))
    retry = urllib3.Retry(0 if settled else 1, status_forcelist=[503], backoff_factor=0)
    with urllib3.PoolManager() as manager, pytest.raises(urllib3.exceptions.MaxRetryError) as raised:
        manager.request("GET", listener.url, retries=retry)

    failure = classify(raised.value)

    assert (failure.code, failure.http_status, failure.retryable) == ("NETWORK_UNAVAILABLE", 503, True)


def test_requests_giving_up_on_a_status_keeps_the_status(serve: Serve) -> None:
    listener = serve(server.answer(500, b"oops"))
    with requests.Session() as session:
        session.trust_env = False
        session.mount(
            "http://", requests.adapters.HTTPAdapter(max_retries=urllib3.Retry(0, status_forcelist=[500]))
        )
        with pytest.raises(requests.exceptions.RetryError) as raised:
            session.get(listener.url, timeout=PATIENT_S)

    failure = classify(raised.value)

    assert (failure.code, failure.http_status) == ("UPSTREAM_ERROR", 500)


@pytest.mark.parametrize("headers", [{"bad\nname": "x"}, {"name": "bad\nvalue"}])
def test_a_header_that_cannot_be_sent_fails_at_once(serve: Serve, headers: dict[str, str]) -> None:
    listener = serve(server.answer(200, b"ok"))

    with pytest.raises(requests.exceptions.InvalidHeader) as from_requests:
        requests.get(listener.url, headers=headers, timeout=PATIENT_S)
    with httpx.Client(trust_env=False) as client, pytest.raises(httpx.LocalProtocolError) as from_httpx:
        client.get(listener.url, headers=headers)

    assert {classify(from_requests.value).code, classify(from_httpx.value).code} == {"REQUEST_INVALID"}
