# SPDX-License-Identifier: Apache-2.0
"""The standard library's exceptions, raised by the standard library itself wherever that takes no socket and no file."""

from __future__ import annotations

import asyncio
import base64
import bz2
import configparser
import csv
import decimal
import email.errors
import errno
import gzip
import importlib.metadata
import io
import ipaddress
import json
import lzma
import multiprocessing
import pickle
import plistlib
import queue
import shutil
import socket
import ssl
import struct
import subprocess
import tarfile
import threading
import tomllib
import xml.etree.ElementTree as ET
import xmlrpc.client
import zipfile
import zlib
import zoneinfo
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from xml.parsers import expat

import pytest

from redrive.core.failure import Failure
from redrive.engine.classifier import classify
from tests.wire_store.catching import failure_of


@pytest.mark.req("CR-1.5")
@pytest.mark.parametrize(
    "parse",
    [
        pytest.param(lambda: json.loads('{"a": '), id="json"),
        pytest.param(b"\xff".decode, id="utf-8"),
        pytest.param(lambda: "ß".encode("ascii"), id="ascii"),
        pytest.param(lambda: base64.b64decode("x", validate=True), id="base64"),
        pytest.param(lambda: list(csv.reader(['"a"b'], strict=True)), id="csv"),
        pytest.param(lambda: zlib.decompress(b"no zlib"), id="zlib"),
        pytest.param(lambda: gzip.decompress(b"no gzip"), id="gzip"),
        pytest.param(lambda: gzip.decompress(gzip.compress(b"x" * 100)[:-8]), id="gzip cut short"),
        pytest.param(lambda: lzma.decompress(b"no lzma"), id="lzma"),
        pytest.param(lambda: zipfile.ZipFile(io.BytesIO(b"no zip")), id="zip"),
        pytest.param(lambda: tarfile.TarFile(fileobj=io.BytesIO(b"no tar" * 200)), id="tar"),
        pytest.param(lambda: ET.fromstring("<a><b></a>"), id="xml tree"),
        pytest.param(lambda: expat.ParserCreate().Parse("<a", True), id="expat"),
        pytest.param(lambda: tomllib.loads("a = "), id="toml"),
        pytest.param(lambda: plistlib.loads(b"no plist"), id="plist"),
        pytest.param(lambda: struct.unpack("i", b"x"), id="struct"),
        pytest.param(lambda: pickle.loads(b"no pickle"), id="pickle"),
        pytest.param(lambda: pickle.loads(b""), id="pickle cut short"),
        pytest.param(lambda: decimal.Decimal("abc"), id="decimal"),
        pytest.param(lambda: ipaddress.IPv4Address("1.2.3"), id="ip address"),
        pytest.param(lambda: zoneinfo.ZoneInfo("No/Where"), id="time zone"),
    ],
)
def test_content_that_does_not_parse_is_a_validation_failure(parse: Callable[[], object]) -> None:
    failure = failure_of(parse)

    assert (failure.code, failure.category, failure.retryable) == ("SCHEMA_INVALID", "validation", False)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        pytest.param(
            lambda: configparser.ConfigParser().read_string("no section"), "CONFIG_INVALID", id="configparser"
        ),
        pytest.param(
            lambda: configparser.ConfigParser().get("a", "b"), "CONFIG_INVALID", id="missing section"
        ),
        pytest.param(
            lambda: importlib.metadata.version("no-such-package"), "CONFIG_INVALID", id="missing package"
        ),
        pytest.param(lambda: decimal.Decimal(1) / 0, "BUG_CODE", id="decimal division"),
        pytest.param(lambda: pickle.dumps(lambda: 0), "BUG_CODE", id="unpicklable"),
        pytest.param(lambda: io.BytesIO().fileno(), "BUG_CODE", id="no descriptor"),
        pytest.param(lambda: None.attribute, "BUG_CODE", id="None dereference"),  # type: ignore[attr-defined]
        pytest.param(lambda: {}["key"], "BUG_CODE", id="missing key"),  # type: ignore[index]
        pytest.param(lambda: int("x"), "BUG_CODE", id="plain ValueError"),
    ],
)
def test_bugs_and_wrong_configuration_are_not_retried(call: Callable[[], object], code: str) -> None:
    failure = failure_of(call)

    assert (failure.code, failure.category, failure.retryable) == (code, "bug", False)


def test_a_regular_expression_that_is_none_is_a_bug() -> None:
    import re

    assert failure_of(re.compile, "(").code == "BUG_CODE"


def test_queues() -> None:
    full: queue.Queue[int] = queue.Queue(1)
    full.put(1)
    assert failure_of(full.put_nowait, 2).code == "QUEUE_FULL"
    assert failure_of(queue.Queue().get_nowait).code == "UPSTREAM_NOT_READY"

    async def asynchronous() -> tuple[Failure, Failure]:
        small: asyncio.Queue[int] = asyncio.Queue(1)
        empty = failure_of(small.get_nowait)
        small.put_nowait(1)
        return failure_of(small.put_nowait, 2), empty

    too_full, empty = asyncio.run(asynchronous())
    assert (too_full.code, too_full.retryable) == ("QUEUE_FULL", True)
    assert (empty.code, empty.retryable) == ("UPSTREAM_NOT_READY", True)


@pytest.mark.untraced
def test_futures_and_tasks_that_time_out_or_are_cancelled() -> None:
    pending: Future[int] = Future()
    assert failure_of(pending.result, timeout=0).code == "TIMEOUT"
    pending.cancel()
    assert failure_of(pending.result).code == "CANCELLED"
    assert classify(CancelledError()).code == "CANCELLED"
    assert classify(InvalidStateError()).code == "BUG_CODE"

    async def waiting() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    assert failure_of(asyncio.run, waiting()).code == "TIMEOUT"

    async def cancelled() -> None:
        task = asyncio.ensure_future(asyncio.Event().wait())
        await asyncio.sleep(0)
        task.cancel()
        await task

    failure = failure_of(asyncio.run, cancelled())
    assert (failure.code, failure.retryable) == ("CANCELLED", False)


@pytest.mark.parametrize(
    "exc",
    [
        TimeoutError("gave up waiting for the lock"),
        multiprocessing.TimeoutError(),
        subprocess.TimeoutExpired(["program"], 1),
        subprocess.CalledProcessError(124, ["timeout", "1", "program"]),
        threading.BrokenBarrierError(),
    ],
)
def test_work_of_our_own_that_took_too_long_heals_and_says_nothing_about_a_dependency(
    exc: BaseException,
) -> None:
    failure = classify(exc)

    assert (failure.code, failure.category, failure.retryable) == ("LOCAL_TIMEOUT", "capacity", True)
    assert not failure.is_reachability
    assert not failure.proves_alive


@pytest.mark.parametrize(
    "exc",
    [
        TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
        TimeoutError("timed out"),
        TimeoutError("The read operation timed out"),
        TimeoutError("_ssl.c:1112: The handshake operation timed out"),
        TimeoutError("timed out during opening handshake"),
    ],
)
def test_a_socket_that_timed_out_counts_against_the_dependency(exc: BaseException) -> None:
    failure = classify(exc)

    assert (failure.code, failure.is_reachability) == ("NETWORK_TIMEOUT", True)


def test_a_thread_that_cannot_be_started_is_a_resource_that_ran_out() -> None:
    failure = classify(RuntimeError("can't start new thread"))

    assert (failure.code, failure.retryable) == ("RESOURCE_EXHAUSTED", True)
    assert classify(RuntimeError("Event loop is closed")).is_unknown
    assert classify(NotImplementedError("can't start new thread")).code == "BUG_CODE"


@pytest.mark.parametrize("exc", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_the_end_of_the_program_is_a_cancellation(exc: BaseException) -> None:
    assert classify(exc).code == "CANCELLED"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ETIMEDOUT, "NETWORK_TIMEOUT"),
        (errno.EHOSTUNREACH, "NETWORK_UNREACHABLE"),
        (errno.ENETUNREACH, "NETWORK_UNREACHABLE"),
        (errno.ENETDOWN, "NETWORK_UNREACHABLE"),
        (errno.ECONNREFUSED, "NETWORK_REFUSED"),
        (errno.ECONNRESET, "NETWORK_RESET"),
        (errno.ECONNABORTED, "NETWORK_RESET"),
        (errno.EPIPE, "NETWORK_RESET"),
        (errno.ENOSPC, "DISK_FULL"),
        (errno.EDQUOT, "DISK_FULL"),
        (errno.EMFILE, "RESOURCE_EXHAUSTED"),
        (errno.ENFILE, "RESOURCE_EXHAUSTED"),
        (errno.EAGAIN, "RESOURCE_EXHAUSTED"),
        (errno.ENOMEM, "OUT_OF_MEMORY"),
        (errno.ENOENT, "IO_NOT_FOUND"),
        (errno.ENOTDIR, "IO_NOT_FOUND"),
        (errno.EISDIR, "IO_NOT_FOUND"),
        (errno.EACCES, "IO_DENIED"),
        (errno.EPERM, "IO_DENIED"),
        (errno.EROFS, "IO_DENIED"),
        (errno.EIO, "IO_ERROR"),
        (errno.ESTALE, "IO_ERROR"),
        (errno.EBUSY, "IO_ERROR"),
        (errno.EINTR, "IO_ERROR"),
        (errno.EEXIST, "CONFLICT"),
        (errno.EFBIG, "REQUEST_TOO_LARGE"),
        (errno.ENAMETOOLONG, "SCHEMA_INVALID"),
        (errno.EINVAL, "BUG_CODE"),
        (errno.EBADF, "BUG_CODE"),
        (99_999, "IO_ERROR"),
    ],
)
def test_operating_system_errors_are_read_by_number(number: int, code: str) -> None:
    assert classify(OSError(number, "text")).code == code


def test_operating_system_errors_without_a_number_are_read_by_class() -> None:
    assert classify(shutil.Error([("from", "to", "why")])).code == "IO_ERROR"
    assert classify(FileNotFoundError("mine")).code == "IO_NOT_FOUND"
    assert classify(PermissionError("mine")).code == "IO_DENIED"
    assert classify(ConnectionError("mine")).code == "NETWORK_ERROR"
    assert classify(BlockingIOError("mine")).code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize(
    "exc", [OSError("image file is truncated (3 bytes not processed)"), OSError(), OSError({"any": "thing"})]
)
def test_a_plain_oserror_without_a_number_is_a_librarys_own_complaint_and_unknown(exc: BaseException) -> None:
    assert classify(exc).is_unknown


def test_a_plain_oserror_without_a_number_leaves_it_to_its_cause() -> None:
    exc = OSError("could not fetch")
    exc.__cause__ = ConnectionResetError(errno.ECONNRESET, "reset")

    assert classify(exc).code == "NETWORK_RESET"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 113] no", "NETWORK_REFUSED"),
        ("Multiple exceptions: who knows", "NETWORK_ERROR"),
        ("Tunnel connection failed: 503 Service Unavailable", "NETWORK_PROXY"),
        ("Tunnel connection failed: 407 Proxy Authentication Required", "AUTH_INVALID"),
        ("cannot read from timed out object", "NETWORK_TIMEOUT"),
        ("getaddrinfo() returned empty list", "NETWORK_DNS"),
        ("getaddrinfo returns an empty list", "NETWORK_DNS"),
        ("Invalid data stream", "SCHEMA_INVALID"),
    ],
)  # fmt: skip
def test_the_standard_librarys_own_plain_oserrors_are_known_by_their_text(text: str, code: str) -> None:
    assert classify(OSError(text)).code == code


def test_bzip2_that_does_not_decompress_is_a_validation_failure() -> None:
    assert failure_of(bz2.decompress, b"no bzip2").code == "SCHEMA_INVALID"


def test_a_foreign_subclass_of_oserror_without_a_number_is_unknown_and_with_one_is_not() -> None:
    class UnreadablePictureError(OSError):
        pass

    unknown = classify(UnreadablePictureError("what kind of picture is this?"))

    assert (unknown.code, unknown.is_unknown) == ("BUG_UNKNOWN", True)
    assert classify(UnreadablePictureError(errno.ENOSPC, "full")).code == "DISK_FULL"


@pytest.mark.parametrize(
    ("number", "code"),
    [(32, "IO_ERROR"), (112, "DISK_FULL"), (121, "NETWORK_TIMEOUT"), (10065, "NETWORK_UNREACHABLE")],
)
def test_windows_own_numbers_win_over_the_portable_one(number: int, code: str) -> None:
    exc = PermissionError(errno.EACCES, "text")
    exc.winerror = number  # type: ignore[attr-defined]

    assert classify(exc).code == code


@pytest.mark.parametrize(
    ("status", "code"),
    [(1, "BUG_UNKNOWN"), (75, "UPSTREAM_NOT_READY"), (124, "LOCAL_TIMEOUT"), (126, "CONFIG_INVALID"), (127, "CONFIG_INVALID"),
     (-9, "WORKER_CRASH"), (137, "WORKER_CRASH"), (139, "WORKER_CRASH"), (-15, "CANCELLED"), (143, "CANCELLED"), (255, "BUG_UNKNOWN")],
)  # fmt: skip
def test_the_exit_status_of_a_child_process(status: int, code: str) -> None:
    assert classify(subprocess.CalledProcessError(status, ["program"])).code == code


def test_email_and_xml_rpc() -> None:
    assert classify(email.errors.HeaderParseError("bad header")).code == "SCHEMA_INVALID"
    failure = classify(xmlrpc.client.ProtocolError("example.org/RPC", 503, "busy", {"Retry-After": "5"}))
    assert (failure.code, failure.http_status, failure.retry_after) == ("NETWORK_UNAVAILABLE", 503, 5.0)


def test_memory_and_streams() -> None:
    assert classify(MemoryError()).code == "OUT_OF_MEMORY"
    assert classify(EOFError()).code == "NETWORK_RESET"
    assert classify(asyncio.IncompleteReadError(b"", 5)).code == "NETWORK_PROTOCOL"


def test_a_resolver_out_of_memory_and_a_certificate_refused_under_the_root_class() -> None:
    refused = ssl.SSLError(1, "certificate verify failed")
    refused.reason = "CERTIFICATE_VERIFY_FAILED"

    assert classify(socket.gaierror(socket.EAI_MEMORY, "memory")).code == "OUT_OF_MEMORY"
    assert classify(socket.gaierror(socket.EAI_AGAIN, "try again")).code == "NETWORK_DNS"
    assert classify(socket.herror(1, "unknown host")).code == "NETWORK_DNS"
    assert classify(refused).code == "TLS_CERTIFICATE"
