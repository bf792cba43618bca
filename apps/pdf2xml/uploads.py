# SPDX-License-Identifier: Apache-2.0
"""Receiving an upload: a form with a file and a mapping, written to a draft while it arrives.

The limit holds for the file while it is read, and a file that does not begin as a PDF is refused at its first bytes; neither is
ever in memory as a whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import Request
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from redrive.errors import BodyError, BodyInvalidError, BodyTooLargeError
from redrive.web import save_stream, stream_limited

FORM_MAX: Final = 100_000
"""Bytes of the form besides the file."""
FIELD_MAX: Final = 100
NAME_MAX: Final = 120
HEAD: Final = 64
DRAIN_SECONDS: Final = 5.0
_MAPPING: Final = re.compile(r"[a-z0-9_-]{1,40}")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class NotPdfError(BodyError):
    """The file does not begin as a PDF."""

    code = "not-pdf"

    def __init__(self) -> None:
        super().__init__("the file does not begin with %PDF-", hint="Upload a PDF.")


@dataclass(slots=True)
class Form:
    """What is known of an upload so far; complete once it was received."""

    name: str = "upload.pdf"
    mapping: str = "text"
    size: int = 0
    sha256: str = ""


async def receive(request: Request, draft: Path, form: Form, limit: int) -> None:
    """Write the file of a request to a draft, and what is known about it to `form`, also when this fails.

    Raises:
        NotPdfError: the file is no PDF.
        BodyTooLargeError: the file has more than `limit` bytes.
        BodyInvalidError: the body is no such form.
        OSError: the draft cannot be written.
    """
    try:
        saved = await save_stream(_file_of(request, form, limit), draft)
    except BodyError:
        # An answer to a client that still sends would be lost with its connection.
        with suppress(Exception):
            await _drain(request, limit)
        raise
    form.size, form.sha256 = saved.size, saved.sha256


async def _drain(request: Request, limit: int) -> None:
    left = limit
    async with asyncio.timeout(DRAIN_SECONDS), aclosing(request.stream()) as rest:
        async for chunk in rest:
            left -= len(chunk)
            if left < 0:
                return


async def _file_of(request: Request, form: Form, limit: int) -> AsyncGenerator[bytes]:
    parser = _Parser(request.headers.get("content-type", ""), form)
    head = b""
    async with aclosing(stream_limited(request, limit + FORM_MAX)) as chunks:
        async for chunk in chunks:
            for piece in parser.feed(chunk):
                form.size += len(piece)
                if form.size > limit:
                    raise BodyTooLargeError(limit=limit, is_decompressed=False)
                if len(head) < HEAD:
                    head += piece[:HEAD]
                    _check_head(head, is_all=len(head) >= HEAD)
                yield piece
    parser.finish()
    _check_head(head, is_all=True)


def _check_head(head: bytes, *, is_all: bool) -> None:
    """Refuse what does not begin as a PDF; a byte-order mark and blanks before it are harmless."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\x00\t\n\x0c\r ")
    if not b"%PDF-".startswith(start[:5]) or (is_all and len(start) < 5):
        raise NotPdfError


class _Parser:
    """The form as it arrives: the fields go into `form`, the bytes of the file are returned."""

    def __init__(self, content_type: str, form: Form) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise BodyInvalidError(problem="it is no multipart form")
        self._form = form
        self._field = ""
        self._header = ["", ""]
        self._text = b""
        self._pieces: list[bytes] = []
        self._has_file = self._has_ended = False
        self._parser = MultipartParser(
            options[b"boundary"],
            {
                "on_part_begin": self._begin_part,
                "on_part_data": self._take,
                "on_part_end": self._end_part,
                "on_header_begin": lambda: self._header.__setitem__(slice(None), ["", ""]),
                "on_header_field": lambda data, start, end: self._add(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._add(1, data[start:end]),
                "on_header_end": self._end_header,
                "on_end": lambda: setattr(self, "_has_ended", True),
            },
        )

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the bytes of the file in the next chunk of the body."""
        self._pieces = []
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise BodyInvalidError(problem="it is no multipart form") from error
        return self._pieces

    def finish(self) -> None:
        """Refuse a form that is incomplete, or has no file."""
        if not self._has_ended:
            raise BodyInvalidError(problem="the form is incomplete")
        if not self._has_file:
            raise BodyInvalidError(problem="the form has no file")

    def _begin_part(self) -> None:
        self._field, self._text = "", b""

    def _add(self, place: int, data: bytes) -> None:
        self._header[place] += data.decode("utf-8", "replace")
        if len(self._header[place]) > 4 * FIELD_MAX * 10:
            raise BodyInvalidError(problem="a header of the form is too long")

    def _end_header(self) -> None:
        if self._header[0].lower() != "content-disposition":
            return
        _, options = parse_options_header(self._header[1].encode())
        self._field = options.get(b"name", b"").decode("utf-8", "replace")
        if self._field == "file":
            if self._has_file:
                raise BodyInvalidError(problem="the form has several files; send one request for each")
            self._has_file = True
            self._form.name = _safe_name(options.get(b"filename", b"").decode("utf-8", "replace"))

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._field == "file":
            self._pieces.append(data[start:end])
        else:
            self._text = (self._text + data[start:end])[: FIELD_MAX + 1]

    def _end_part(self) -> None:
        if self._field == "mapping":
            text = self._text.decode("utf-8", "replace")
            if not _MAPPING.fullmatch(text):
                raise BodyInvalidError(problem="the mapping must be a word of small letters")
            self._form.mapping = text


def _safe_name(given: str) -> str:
    """Return a file name to show, without folders and without characters that change how a line looks."""
    name = _UNPRINTABLE.sub("", given.replace("\\", "/").rpartition("/")[2]).strip()
    stem, dot, ending = name.rpartition(".")
    if len(name) > NAME_MAX:
        name = f"{stem[: NAME_MAX - 10]}{dot}{ending[:9]}" if stem else name[:NAME_MAX]
    return name or "upload.pdf"
