# SPDX-License-Identifier: Apache-2.0
"""The body of a request, with its limits enforced while it is read.

A body that is too large is refused before the rest of it is received, and a compressed one before the rest of it is
unpacked: neither is ever in memory. What these functions raise is a `BodyError`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
from fastapi import Request

from redrive.errors import BodyEncodingError, BodyInvalidError, BodyTimeoutError, BodyTooLargeError

IDLE_SECONDS: Final = 30.0
"""How long the next bytes of a body may take."""
_BLOCK: Final = 1 << 18
_T = TypeVar("_T")
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {}


@dataclass(frozen=True, slots=True)
class SavedBody:
    """A body in a file: how long it is, and the hex digest of its SHA-256."""

    size: int
    sha256: str


async def read_limited(request: Request, max_bytes: int, *, gzip_max: int | None = None) -> bytes:
    """Return the whole body; the arguments are those of `stream_limited`."""
    async with aclosing(stream_limited(request, max_bytes, gzip_max=gzip_max)) as chunks:
        return b"".join([chunk async for chunk in chunks])


def decode_json(body: bytes, kind: type[_T]) -> _T:
    """Return JSON as a value of this type.

    Raises:
        BodyInvalidError: it is no JSON, or does not fit; the message has the place.
    """
    try:
        # Made once for a type: making one takes longer than most bodies, and is not safe on several threads.
        decoder = _DECODERS.get(kind) or _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
        return cast("_T", decoder.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyInvalidError(problem=str(error)) from error
    except RecursionError:
        raise BodyInvalidError(problem="it is nested too deep") from None


async def stream_limited(
    request: Request, max_bytes: int, *, gzip_max: int | None = None, idle: float = IDLE_SECONDS
) -> AsyncGenerator[bytes]:
    """Yield the body as it arrives, unpacked if it is compressed.

    Args:
        request: The request; its body must not have been read.
        max_bytes: The most bytes that are received.
        gzip_max: The most bytes after decompression; None refuses compressed bodies.
        idle: How many seconds the next bytes may take.

    Raises:
        BodyTooLargeError: it is larger than a limit; without reading it if Content-Length has it.
        BodyInvalidError: the gzip stream is damaged or incomplete.
        BodyEncodingError: it has another Content-Encoding.
        BodyTimeoutError: no byte arrived for `idle` seconds.
    """
    chunks = _received(request.stream(), max_bytes, idle)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in {"gzip", "x-gzip"} and gzip_max is not None:
        chunks = _unpacked(chunks, gzip_max)
    elif encoding != "identity":
        raise BodyEncodingError(allowed="no Content-Encoding" if gzip_max is None else "gzip, or none")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise BodyTooLargeError(limit=max_bytes, is_decompressed=False)
    async for chunk in chunks:
        yield chunk


async def _received(chunks: AsyncGenerator[bytes], limit: int, idle: float) -> AsyncIterator[bytes]:
    size = 0
    async with aclosing(chunks):
        while True:
            try:
                chunk = await asyncio.wait_for(anext(chunks, None), idle)
            except TimeoutError as error:
                raise BodyTimeoutError(seconds=idle) from error
            if chunk is None:
                return
            size += len(chunk)
            if size > limit:
                raise BodyTooLargeError(limit=limit, is_decompressed=False)
            if chunk:
                yield chunk


async def _unpacked(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Unpack one or more gzip members, a block at a time."""
    member, size = zlib.decompressobj(wbits=31), 0
    async for chunk in chunks:
        packed = chunk
        while packed:
            if member.eof:
                member = zlib.decompressobj(wbits=31)
            try:
                piece = member.decompress(packed, _BLOCK)
            except zlib.error as error:
                raise BodyInvalidError(problem="it is no gzip stream, or a damaged one") from error
            packed = member.unconsumed_tail or member.unused_data
            size += len(piece)
            if size > limit:
                raise BodyTooLargeError(limit=limit, is_decompressed=True)
            if piece:
                yield piece
    if not member.eof:
        raise BodyInvalidError(problem="its gzip stream is incomplete")


async def save_stream(chunks: AsyncGenerator[bytes], path: Path) -> SavedBody:
    """Write chunks to a new file that only its owner may read, durable when this returns; on failure there is no file.

    Raises:
        OSError: the file exists, or cannot be written.
    """
    file, block = _NewFile(path), bytearray()
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                block += chunk
                # Chunks may be small; a block is worth the way to a thread.
                if len(block) >= _BLOCK:
                    await asyncio.to_thread(file.add, bytes(block))
                    block.clear()
            await asyncio.to_thread(file.end, bytes(block))
    except BaseException:
        file.remove()
        raise
    return SavedBody(file.size, file.digest.hexdigest())


class _NewFile:
    """A file that is created with its first block, and durable after its last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BufferedWriter | None = None
        self._is_gone = False
        self.digest = hashlib.sha256()
        self.size = 0

    def add(self, block: bytes) -> BufferedWriter:
        if self._file is None:
            self._file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self._file.write(block)
        self.digest.update(block)
        self.size += len(block)
        if self._is_gone:
            # Nobody waits for it any more.
            self._path.unlink(missing_ok=True)
        return self._file

    def end(self, block: bytes) -> None:
        with self.add(block) as file:
            file.flush()
            os.fsync(file.fileno())
        # Its name is durable once its folder is.
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self) -> None:
        """Remove what was written; a file that existed before stays."""
        self._is_gone = True
        if self._file is not None:
            # Its thread may still write.
            with suppress(OSError, ValueError):
                self._file.close()
            self._path.unlink(missing_ok=True)
