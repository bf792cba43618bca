# SPDX-License-Identifier: Apache-2.0
"""Bodies: limits while reading, before and after decompression; files with their digest."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path

import httpx
import msgspec
import pytest
from fastapi import FastAPI, Request
from starlette.types import Message

from redrive.errors import BodyEncodingError, BodyInvalidError, BodyTimeoutError, BodyTooLargeError
from redrive.web import (
    JsonResponse,
    Problem,
    SavedBody,
    decode_json,
    install_problems,
    read_limited,
    save_stream,
    stream_limited,
)
from redrive.web.bodies import _NewFile
from tests.unit.build import bounded


class Body:
    """A request whose body arrives in these chunks; it counts what was asked for."""

    def __init__(self, chunks: Iterable[bytes], **headers: str) -> None:
        self._chunks = list(chunks)
        self.received = 0
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self.request = Request({"type": "http", "method": "POST", "headers": raw}, self._receive)

    async def _receive(self) -> Message:
        chunk = self._chunks[self.received]
        self.received += 1
        return {"type": "http.request", "body": chunk, "more_body": self.received < len(self._chunks)}


def read(body: Body, limit: int, gzip_max: int | None = None) -> bytes:
    return bounded(read_limited(body.request, limit, gzip_max=gzip_max))


def test_a_body_up_to_the_limit_is_read() -> None:
    assert read(Body([b"ab", b"", b"cd"]), 4) == b"abcd"
    assert read(Body([b""]), 1) == b""


def test_a_body_above_the_limit_is_refused_before_the_rest_arrives() -> None:
    body = Body([b"abc", b"def", b"ghi", b"jkl"])

    with pytest.raises(BodyTooLargeError) as caught:
        read(body, 4)

    assert (caught.value.limit, caught.value.is_decompressed) == (4, False)
    assert body.received == 2


def test_a_declared_length_above_the_limit_is_refused_without_reading() -> None:
    body = Body([b"x"], content_length="5")

    with pytest.raises(BodyTooLargeError):
        read(body, 4)

    assert body.received == 0


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_gzip_is_unpacked_while_it_arrives_in_any_chunks_and_members(size: int) -> None:
    text = bytes(range(256)) * 400
    packed = gzip.compress(text[:5000]) + gzip.compress(text[5000:])
    chunks = [packed[at : at + size] for at in range(0, len(packed), size)]

    assert read(Body(chunks, content_encoding="gzip"), len(packed), len(text)) == text


def test_a_gzip_bomb_is_refused_while_it_is_unpacked() -> None:
    packed = gzip.compress(bytes(50_000_000))
    chunks = [packed[at : at + 1000] for at in range(0, len(packed), 1000)]
    body = Body(chunks, content_encoding="gzip")

    with pytest.raises(BodyTooLargeError) as caught:
        read(body, 100_000, 1_000_000)

    assert caught.value.is_decompressed
    assert body.received < len(chunks) / 10


def test_the_bytes_before_decompression_have_their_own_limit() -> None:
    packed = gzip.compress(b"x" * 100)

    with pytest.raises(BodyTooLargeError) as caught:
        read(Body([packed], content_encoding="gzip"), len(packed) - 1, 1000)

    assert not caught.value.is_decompressed


@pytest.mark.parametrize(
    "packed",
    [b"plain text", gzip.compress(b"x" * 1000)[:-3], b"", gzip.compress(b"x") + b"rubbish"],
    ids=["no gzip", "cut", "empty", "rubbish after it"],
)
def test_damaged_gzip_is_refused(packed: bytes) -> None:
    with pytest.raises(BodyInvalidError):
        read(Body([packed], content_encoding="gzip"), 10_000, 10_000)


@pytest.mark.parametrize(("encoding", "gzip_max"), [("br", 10), ("gzip", None), ("gzip, gzip", 10)])
def test_other_encodings_are_refused(encoding: str, gzip_max: int | None) -> None:
    with pytest.raises(BodyEncodingError):
        read(Body([b"x"], content_encoding=encoding), 10, gzip_max)


def test_a_body_that_stops_arriving_is_refused() -> None:
    async def never() -> Message:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def scene() -> None:
        request = Request({"type": "http", "method": "POST", "headers": []}, never)
        async for _ in stream_limited(request, 10, idle=0.001):
            pass

    with pytest.raises(BodyTimeoutError):
        bounded(scene())


class Thing(msgspec.Struct):
    number: int


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_json_that_is_nested_too_deep_is_refused_and_no_bug(body: bytes) -> None:
    with pytest.raises(BodyInvalidError, match="nested too deep"):
        decode_json(body, list)


def test_json_becomes_a_value_and_what_does_not_fit_is_refused_by_its_place() -> None:
    assert decode_json(b'{"number": 3}', Thing) == Thing(3)
    with pytest.raises(BodyInvalidError, match=r"at `\$\.number`"):
        decode_json(b'{"number": "three"}', Thing)
    with pytest.raises(BodyInvalidError):
        decode_json(b"{", Thing)
    with pytest.raises(BodyInvalidError):
        decode_json(b'"\xff"', str)


async def chunks_of(parts: Iterable[bytes], error: Exception | None = None) -> AsyncGenerator[bytes]:
    for part in parts:
        yield part
    if error is not None:
        raise error


def test_a_stream_becomes_a_private_file_with_its_size_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    parts = [b"a" * 200_000, b"b" * 200_000, b"c"]

    saved = bounded(save_stream(chunks_of(parts), path))

    whole = b"".join(parts)
    assert path.read_bytes() == whole
    assert saved == SavedBody(len(whole), hashlib.sha256(whole).hexdigest())
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_stream_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        bounded(save_stream(chunks_of([b"x" * 300_000], ConnectionError()), tmp_path / "file"))

    assert list(tmp_path.iterdir()) == []


def test_a_stream_replaces_no_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    with pytest.raises(FileExistsError):
        bounded(save_stream(chunks_of([b"new"]), path))

    assert path.read_bytes() == b"old"


def test_a_file_that_nobody_waits_for_any_more_is_removed_by_its_thread(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = _NewFile(path)

    file.remove()
    file.end(b"late")

    assert not path.exists()


def test_a_refused_body_is_answered_with_its_status_and_code() -> None:
    app = FastAPI()
    install_problems(app, unexpected=Problem.of_status(500))

    @app.post("/")
    async def take(request: Request) -> JsonResponse:
        return JsonResponse(decode_json(await read_limited(request, 20, gzip_max=20), Thing))

    async def post(body: bytes, **headers: str) -> tuple[int, object]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            answer = await client.post("/", content=body, headers=sent)
            return answer.status_code, answer.json().get("code")

    assert bounded(post(b'{"number": 3}')) == (200, None)
    assert bounded(post(b"x" * 21)) == (413, "body-too-large")
    assert bounded(post(b"x")) == (400, "body-invalid")
    assert bounded(post(b"x", content_encoding="br")) == (415, "body-encoding")
