# SPDX-License-Identifier: Apache-2.0
"""Decode the error details in the gRPC header `grpc-status-details-bin`, without protobuf.

The bytes are a google.rpc.Status. The result has the shape of Google's JSON errors, so that `core.provider` handles REST and gRPC
alike. The bytes are not trusted: every length is checked, and malformed bytes yield an empty result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

STATUS_MAX: Final = 65_536
"""Longer details are not decoded; in bytes. gRPC itself allows 8 KiB of metadata by default."""

_FIELDS_MAX: Final = 256
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Detail = dict[str, object]


class _MalformedError(Exception):
    """The bytes are not a protobuf message."""


def read_status(data: bytes) -> Detail:
    """Return the status as a mapping with `details`; empty when the bytes cannot be read."""
    if len(data) > STATUS_MAX:
        return {}
    try:
        return {"details": [_detail(value) for value in _parts(data, 3)]}
    except _MalformedError:
        return {}


def _detail(data: bytes) -> Detail:
    """Read one google.protobuf.Any."""
    name, content = "", b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            name = _text(value).rsplit("/", 1)[-1]
        elif number == 2 and isinstance(value, bytes):
            content = value
    read = _READERS.get(name)
    return {"@type": name, **(read(content) if read else {})}


def _error_info(data: bytes) -> Detail:
    return {"reason": _first_text(data, 1), "metadata": dict(map(_pair, _parts(data, 3)))}


def _retry_info(data: bytes) -> Detail:
    for value in _parts(data, 1):
        parts = {field: part for field, part in _fields(value) if isinstance(part, int)}
        return {"retryDelay": _signed(parts.get(1, 0)) + _signed(parts.get(2, 0)) / 1e9}
    return {}


def _quota_failure(data: bytes) -> Detail:
    return {
        "violations": [
            {"subject": _first_text(value, 1), "quotaId": _first_text(value, 5)} for value in _parts(data, 1)
        ]
    }


def _request_info(data: bytes) -> Detail:
    return {"requestId": _first_text(data, 1)}


_READERS: Final[dict[str, Callable[[bytes], Detail]]] = {
    "google.rpc.ErrorInfo": _error_info,
    "google.rpc.RetryInfo": _retry_info,
    "google.rpc.QuotaFailure": _quota_failure,
    "google.rpc.RequestInfo": _request_info,
}


def _pair(data: bytes) -> tuple[str, str]:
    """Read one entry of a protobuf map of texts."""
    return _first_text(data, 1), _first_text(data, 2)


def _first_text(data: bytes, wanted: int) -> str:
    return _text(next(_parts(data, wanted), b""))


def _parts(data: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the fields of this number that are texts or messages."""
    return (value for number, value in _fields(data) if number == wanted and isinstance(value, bytes))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _signed(value: int) -> int:
    """Convert from two's complement of 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of one message: numbers as int, everything with a length as bytes."""
    position = 0
    for _ in range(_FIELDS_MAX):
        if position >= len(data):
            return
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            number, position = _varint(data, position)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            length, position = _varint(data, position)
        else:
            length = {_FIXED64: 8, _FIXED32: 4}.get(kind, -1)
        if length < 0 or position + length > len(data):
            raise _MalformedError
        yield key >> 3, data[position : position + length]
        position += length
    raise _MalformedError


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), position
    raise _MalformedError
