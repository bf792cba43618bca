# SPDX-License-Identifier: Apache-2.0
"""gRPC, sync and asyncio, and google-api-core over it, against a real server on loopback; no generated code is involved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import google.api_core.exceptions
import grpc
import pytest
from google.api_core import grpc_helpers
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from redrive.core.failure import Category, Failure
from redrive.engine.classifier import classify
from redrive.rules.shared.rpc_status import read_status
from tests.wire.clients import HASTY_S, PATIENT_S
from tests.wire.server import Certificates, Refusing, Serve, answer

METHOD = "/wire.Service/Call"
Behave = Callable[[grpc.ServicerContext], object]
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
def rpc() -> Iterator[Callable[..., str]]:
    """Start servers whose only method does as told; they end with the test."""
    servers: list[grpc.Server] = []

    def start(behave: Behave, *, credentials: object = None, **options: object) -> str:
        handler = grpc.unary_unary_rpc_method_handler(lambda _request, context: behave(context))
        handlers = grpc.method_handlers_generic_handler("wire.Service", {"Call": handler})
        server = grpc.server(ThreadPoolExecutor(2), handlers=[handlers], options=list(options.items()))
        if credentials is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(grace=None).wait()


def _sync(target: str, *, timeout: float = PATIENT_S, content: bytes = b"x") -> None:
    with grpc.insecure_channel(target) as channel:
        channel.unary_unary(METHOD)(content, timeout=timeout)


def _aio(target: str, *, timeout: float = PATIENT_S, content: bytes = b"x") -> None:
    async def call() -> None:
        async with grpc.aio.insecure_channel(target) as channel:
            await channel.unary_unary(METHOD)(content, timeout=timeout)

    asyncio.run(call())


def _api_core(target: str, *, timeout: float = PATIENT_S, content: bytes = b"x") -> None:
    with grpc.insecure_channel(target) as channel:
        grpc_helpers.wrap_errors(channel.unary_unary(METHOD))(content, timeout=timeout)


CALLS: dict[str, Callable[..., None]] = {"grpc": _sync, "grpc.aio": _aio, "api_core": _api_core}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Callable[..., None]:
    return CALLS[request.param]


def _failure(call: Callable[..., None], target: str, *, idempotent: bool = False, **how: object) -> Failure:
    with pytest.raises((grpc.RpcError, google.api_core.exceptions.GoogleAPICallError)) as raised:
        call(target, **how)
    return classify(raised.value, idempotent=idempotent)


def _abort(
    code: grpc.StatusCode, details: str = "as told", metadata: tuple[tuple[str, str | bytes], ...] = ()
) -> Behave:
    def behave(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata(metadata)
        context.abort(code, details)

    return behave


# github.com/grpc/grpc/blob/master/doc/statuscodes.md
STATUSES = {
    "CANCELLED": ("CANCELLED", False),
    "UNKNOWN": ("UPSTREAM_ERROR", True),
    "INVALID_ARGUMENT": ("REQUEST_INVALID", False),
    "DEADLINE_EXCEEDED": ("NETWORK_TIMEOUT", True),
    "NOT_FOUND": ("NOT_FOUND", False),
    "ALREADY_EXISTS": ("CONFLICT", False),
    "PERMISSION_DENIED": ("AUTH_DENIED", False),
    "RESOURCE_EXHAUSTED": ("RATE_LIMITED", True),
    "FAILED_PRECONDITION": ("REQUEST_INVALID", False),
    "ABORTED": ("CONFLICT", False),
    "OUT_OF_RANGE": ("REQUEST_INVALID", False),
    "UNIMPLEMENTED": ("UPSTREAM_UNSUPPORTED", False),
    "INTERNAL": ("UPSTREAM_ERROR", True),
    "UNAVAILABLE": ("NETWORK_UNAVAILABLE", True),
    "DATA_LOSS": ("SCHEMA_INVALID", False),
    "UNAUTHENTICATED": ("AUTH_INVALID", False),
}


def test_every_status_of_the_library_has_a_row() -> None:
    assert {status.name for status in grpc.StatusCode} - {"OK"} == set(STATUSES)


@pytest.mark.untraced
@pytest.mark.req("CR-1.1", "CR-1.3", "CR-1.6")
@pytest.mark.parametrize("name", STATUSES)
def test_a_status_says_what_failed_and_whether_it_heals(
    call: Callable[..., None], rpc: Callable[..., str], name: str
) -> None:
    failure = _failure(call, rpc(_abort(grpc.StatusCode[name])))

    assert (failure.code, failure.retryable) == STATUSES[name]
    assert failure.provider_code == name


@pytest.mark.req("CR-1.4")
def test_an_aborted_call_heals_for_an_idempotent_stage(
    call: Callable[..., None], rpc: Callable[..., str]
) -> None:
    assert _failure(call, rpc(_abort(grpc.StatusCode.ABORTED)), idempotent=True).retryable


def _details(code: grpc.StatusCode, *messages: object) -> tuple[tuple[str, bytes], ...]:
    status = status_pb2.Status(code=code.value[0], message="as told")
    for message in messages:
        packed = any_pb2.Any()
        packed.Pack(message)
        status.details.append(packed)
    return ((rpc_status.GRPC_DETAILS_METADATA_KEY, status.SerializeToString()),)


def _wait(seconds: int, nanos: int = 0) -> error_details_pb2.RetryInfo:
    return error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds, nanos=nanos))


def _quota(quota_id: str) -> error_details_pb2.QuotaFailure:
    violation = error_details_pb2.QuotaFailure.Violation(
        subject="project:1", description="spent", quota_id=quota_id
    )
    return error_details_pb2.QuotaFailure(violations=[violation])


@pytest.mark.req("CR-1.2")
@pytest.mark.parametrize(
    ("messages", "code", "word", "retry_after"),
    [
        ((_wait(34, 500_000_000),), "RATE_LIMITED", "RESOURCE_EXHAUSTED", 34.5),
        ((_wait(0),), "RATE_LIMITED", "RESOURCE_EXHAUSTED", 0.0),
        ((_wait(-5),), "RATE_LIMITED", "RESOURCE_EXHAUSTED", None),
        (
            (error_details_pb2.ErrorInfo(reason="RATE_LIMIT_EXCEEDED", domain="googleapis.com"), _wait(3)),
            "RATE_LIMITED",
            "RATE_LIMIT_EXCEEDED",
            3.0,
        ),
        ((_quota("RequestsPerDayPerProject"),), "QUOTA_EXHAUSTED", "RequestsPerDayPerProject", None),
        ((_quota("RequestsPerMinutePerProject"), _wait(9)), "RATE_LIMITED", "RESOURCE_EXHAUSTED", 9.0),
        (
            (
                error_details_pb2.ErrorInfo(
                    reason="RATE_LIMIT_EXCEEDED", metadata={"quota_limit": "ReadsPerDay"}
                ),
            ),
            "QUOTA_EXHAUSTED",
            "ReadsPerDay",
            None,
        ),
        (
            (error_details_pb2.Help(), error_details_pb2.DebugInfo(detail="x")),
            "RATE_LIMITED",
            "RESOURCE_EXHAUSTED",
            None,
        ),
    ],
)
def test_the_details_say_how_long_and_which_quota(
    call: Callable[..., None],
    rpc: Callable[..., str],
    messages: tuple[object, ...],
    code: str,
    word: str,
    retry_after: float | None,
) -> None:
    failure = _failure(call, rpc(_abort(EXHAUSTED, metadata=_details(EXHAUSTED, *messages))))

    assert (failure.code, failure.provider_code, failure.retry_after) == (code, word, retry_after)


@pytest.mark.req("CR-1.6")
def test_the_reason_in_the_details_says_more_than_the_status(
    call: Callable[..., None], rpc: Callable[..., str]
) -> None:
    reason = error_details_pb2.ErrorInfo(reason="API_KEY_INVALID", domain="googleapis.com")

    status = grpc.StatusCode.INVALID_ARGUMENT

    failure = _failure(call, rpc(_abort(status, metadata=_details(status, reason))))

    assert (failure.code, failure.retryable, failure.provider_code) == (
        "AUTH_INVALID",
        False,
        "API_KEY_INVALID",
    )


def test_the_servers_id_for_the_request_is_kept(call: Callable[..., None], rpc: Callable[..., str]) -> None:
    status = grpc.StatusCode.INTERNAL
    metadata = _details(status, error_details_pb2.RequestInfo(request_id="req-9"))

    assert _failure(call, rpc(_abort(status, metadata=metadata))).request_id == "req-9"


# github.com/grpc/proposal/blob/master/A6-client-retries.md, "Pushback"
@pytest.mark.req("CR-1.2")
@pytest.mark.parametrize(
    ("pushback", "heals", "retry_after"),
    [("1500", True, 1.5), ("0", True, 0.0), ("-1", False, None), ("never", False, None)],
)
def test_the_servers_pushback_is_obeyed(
    call: Callable[..., None], rpc: Callable[..., str], pushback: str, heals: bool, retry_after: float | None
) -> None:
    metadata = (("grpc-retry-pushback-ms", pushback),)

    failure = _failure(call, rpc(_abort(grpc.StatusCode.UNAVAILABLE, metadata=metadata)))

    assert (failure.code, failure.retryable, failure.retry_after) == (
        "NETWORK_UNAVAILABLE",
        heals,
        retry_after,
    )


@pytest.mark.req("CR-1.1")
def test_a_dead_port_is_refused(call: Callable[..., None], refusing: Refusing) -> None:
    failure = _failure(call, f"127.0.0.1:{refusing.port}")

    assert (failure.code, failure.category, failure.retryable) == ("NETWORK_REFUSED", Category.NETWORK, True)


@pytest.mark.req("CR-1.1")
def test_a_name_that_does_not_resolve_heals(call: Callable[..., None]) -> None:
    # gRPC's resolver is native code and asks for real; this name it refuses by itself, with the words of any failed lookup.
    failure = _failure(call, "dns:///a..b:1")

    assert (failure.code, failure.retryable) == ("NETWORK_DNS", True)


def test_a_target_that_is_none_is_wrong_configuration(call: Callable[..., None]) -> None:
    failure = _failure(call, "dns:///")

    assert (failure.code, failure.retryable) == ("CONFIG_INVALID", False)


@pytest.mark.req("CR-1.1")
def test_a_deadline_that_passes_heals(call: Callable[..., None], rpc: Callable[..., str]) -> None:
    failure = _failure(call, rpc(_until_over), timeout=HASTY_S)

    assert (failure.code, failure.retryable) == ("NETWORK_TIMEOUT", True)


def _until_over(context: grpc.ServicerContext) -> bytes:
    over = threading.Event()
    if context.add_callback(over.set):
        over.wait(PATIENT_S)
    return b""


@pytest.mark.req("CR-1.5")
def test_a_message_over_the_limit_does_not_heal(call: Callable[..., None], rpc: Callable[..., str]) -> None:
    target = rpc(lambda _context: b"", **{"grpc.max_receive_message_length": 10})

    failure = _failure(call, target, content=b"x" * 100)

    assert (failure.code, failure.retryable) == ("REQUEST_TOO_LARGE", False)


@pytest.mark.req("CR-1.1")
def test_a_gateway_that_speaks_no_grpc_keeps_its_status(call: Callable[..., None], serve: Serve) -> None:
    """An HTTP/1.1 server on the port: the client cannot make sense of it and says that the service is unavailable."""
    failure = _failure(call, f"127.0.0.1:{serve(answer(502)).port}", timeout=PATIENT_S)

    assert (failure.category, failure.retryable) == (Category.NETWORK, True)


def test_an_untrusted_certificate_does_not_heal(rpc: Callable[..., str], certificates: Certificates) -> None:
    pair = ((certificates.untrusted_key, certificates.untrusted_chain),)
    target = rpc(lambda _context: b"", credentials=grpc.ssl_server_credentials(pair))
    trust = grpc.ssl_channel_credentials(root_certificates=certificates.trusted_bytes)

    with grpc.secure_channel(target, trust) as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(METHOD)(b"", timeout=PATIENT_S)

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("TLS_CERTIFICATE", False)


def test_a_call_that_we_cancel_is_cancelled(rpc: Callable[..., str]) -> None:
    with grpc.insecure_channel(rpc(_until_over)) as channel:
        asked = channel.unary_unary(METHOD).future(b"", timeout=PATIENT_S)
        asked.cancel()
        with pytest.raises(grpc.FutureCancelledError) as raised:
            asked.result()

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("CANCELLED", False)


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_details_that_are_cut_short_or_forged_say_nothing(cut: int) -> None:
    whole = _details(EXHAUSTED, _wait(34), error_details_pb2.ErrorInfo(reason="RATE_LIMIT_EXCEEDED"))[0][1]

    assert isinstance(read_status(whole[:cut]), dict)
    assert isinstance(read_status(whole[cut:]), dict)
    assert read_status(b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f") == {}
    assert read_status(b"\x80" * 100) == {}
    assert read_status(b"\x1a" * 70_000) == {}
