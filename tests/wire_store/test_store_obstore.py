# SPDX-License-Identifier: Apache-2.0
"""obstore against a local server that answers as S3 does, and against a local folder."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore, S3Store

from redrive.core.failure import Failure
from tests.wire_store.catching import failure_of, raised_by
from tests.wire_store.sockets import listening, saying, securing

if TYPE_CHECKING:
    from obstore.store import ClientConfig  # exists for type checkers only


class FakeS3(http.server.BaseHTTPRequestHandler):
    """Answers with the status and the error code that the key asks for: `503-SlowDown`."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        status, _, word = self.path.partition("?")[0].rpartition("/")[2].partition("-")
        body = f"<?xml version='1.0'?><Error><Code>{word}</Code><RequestId>REQ-1</RequestId></Error>".encode()
        self.send_response(int(status))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = answer  # noqa: N815 - the names http.server calls.

    def log_message(self, *_args: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeS3) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def bucket(
    port: int, *, scheme: str = "http", host: str = "127.0.0.1", **client_options: Unpack[ClientConfig]
) -> S3Store:
    return S3Store(
        "bucket",
        endpoint=f"{scheme}://{host}:{port}",
        region="here",
        access_key_id="id",
        secret_access_key="made up",
        client_options={"allow_http": True, "timeout": "5s", **client_options},
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=5)},
    )


@pytest.mark.parametrize(
    ("answer", "code", "retryable"),
    [
        ("500-InternalError", "UPSTREAM_ERROR", True),
        ("502-x", "NETWORK_BAD_GATEWAY", True),
        ("503-ServiceUnavailable", "NETWORK_UNAVAILABLE", True),
        ("503-SlowDown", "RATE_LIMITED", True),
        ("429-TooManyRequests", "RATE_LIMITED", True),
        ("400-RequestTimeout", "NETWORK_TIMEOUT", True),
        ("400-InvalidArgument", "REQUEST_INVALID", False),
        ("413-EntityTooLarge", "REQUEST_TOO_LARGE", False),
        ("401-Unauthorized", "AUTH_INVALID", False),
        ("403-AccessDenied", "AUTH_DENIED", False),
        ("403-InvalidAccessKeyId", "AUTH_INVALID", False),
        ("404-NoSuchKey", "NOT_FOUND", False),
        ("404-NoSuchBucket", "NOT_FOUND", False),
        ("409-OperationAborted", "CONFLICT", False),
        ("412-PreconditionFailed", "CONFLICT", False),
    ],
)
@pytest.mark.req("CR-1.6", "CR-1.7")
def test_an_answer_is_read_by_status_and_by_the_stores_own_word(
    s3_port: int, answer: str, code: str, retryable: bool
) -> None:
    failure = failure_of(obstore.put, bucket(s3_port), answer, b"content")

    assert (failure.code, failure.retryable, failure.http_status) == (code, retryable, int(answer[:3]))
    assert failure.provider_code == answer[4:]
    assert failure.request_id == "REQ-1"


def test_an_answer_without_a_body_is_read_by_its_status(s3_port: int) -> None:
    assert failure_of(obstore.head, bucket(s3_port), "404-x").code == "NOT_FOUND"
    assert failure_of(obstore.head, bucket(s3_port), "503-x").code == "NETWORK_UNAVAILABLE"


def test_a_missing_object_arrives_as_the_built_in_exception_and_is_known_all_the_same(s3_port: int) -> None:
    exc = raised_by(obstore.get, bucket(s3_port), "404-NoSuchKey")

    assert type(exc) is FileNotFoundError


def reading(port: int, **options: Any) -> Failure:
    return failure_of(lambda: obstore.get(bucket(port, **options), "key").bytes())


@pytest.mark.req("CR-1.1")
def test_trouble_with_the_network_is_told_apart_and_heals(
    closed_port: int, silent_port: int, resetting_port: int, closing_port: int
) -> None:
    assert reading(closed_port).code == "NETWORK_REFUSED"
    assert reading(silent_port, timeout="100ms").code == "NETWORK_TIMEOUT"
    assert reading(resetting_port).code == "NETWORK_RESET"
    assert reading(closing_port).code == "NETWORK_RESET"
    assert reading(80, host="nohost.invalid").code == "NETWORK_DNS"
    assert reading(closed_port).retryable


def test_an_answer_that_is_cut_short_or_no_http_is_a_protocol_failure() -> None:
    head = b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\nlast-modified: Wed, 21 Oct 2015 07:28:00 GMT\r\netag: "x"\r\n\r\n'
    for answer in (head + b"abc", b"garbage\r\n\r\n"):
        with listening(saying(answer)) as port:
            assert reading(port).code == "NETWORK_PROTOCOL"


def test_a_certificate_of_an_unknown_authority_is_not_retried(server_tls: ssl.SSLContext) -> None:
    with listening(securing(server_tls)) as port:
        failure = reading(port, scheme="https")

    assert (failure.code, failure.retryable) == ("TLS_CERTIFICATE", False)


def test_wrong_configuration_is_not_retried(s3_port: int) -> None:
    assert reading(s3_port, allow_http=False).code == "CONFIG_INVALID"
    assert failure_of(S3Store, "bucket", no_such_option=1).code == "CONFIG_INVALID"
    assert failure_of(S3Store).code == "CONFIG_INVALID"


def test_a_local_folder_is_read_by_the_operating_systems_number(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    obstore.put(store, "file", b"content")

    assert failure_of(obstore.get, store, "nothing").code == "IO_NOT_FOUND"
    assert failure_of(obstore.put, store, "file", b"", mode="create").code == "CONFLICT"
    assert failure_of(obstore.put, store, "file/below", b"").code == "IO_NOT_FOUND"
    assert failure_of(LocalStore, str(tmp_path / "no" / "folder")).code == "IO_NOT_FOUND"


@pytest.mark.req("CR-1.4")
def test_conditions_that_do_not_hold_are_conflicts_and_an_unchanged_object_is_no_failure_to_retry() -> None:
    store = MemoryStore()
    obstore.put(store, "key", b"content")
    tag = obstore.head(store, "key")["e_tag"]

    assert failure_of(obstore.put, store, "key", b"", mode={"e_tag": "other"}).code == "CONFLICT"
    assert failure_of(obstore.put, store, "key", b"", mode="create").code == "CONFLICT"
    assert not failure_of(obstore.get, store, "key", options={"if_none_match": tag}).retryable
    assert failure_of(obstore.get, store, "nothing").code == "NOT_FOUND"
