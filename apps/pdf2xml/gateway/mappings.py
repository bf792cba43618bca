# SPDX-License-Identifier: Apache-2.0
"""Mappings: how an open PDF is written as XML. Runs in the child process, on files that may be malicious.

`text` has the text of each page; `layout` has each line of text with its place and size in points, from the top left corner.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import Final, Protocol
from xml.sax.saxutils import escape, quoteattr

import pypdfium2

PAGES_MAX: Final = 20_000
# What XML 1.0 cannot hold; PDFium also uses U+FFFE for a hyphen at the end of a line.
_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class RefusedError(Exception):
    """The file cannot be converted; the message is for the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class TextFile(Protocol):
    """Where the XML is written."""

    def write(self, text: str, /) -> object:
        """Write a text."""
        ...


def convert(source: str, mapping: str, out: TextFile) -> int:
    """Write a PDF as XML; return the number of its pages.

    Raises:
        RefusedError: it is damaged, encrypted, empty or no PDF, or the mapping is not known.
    """
    write_page = MAPPINGS.get(mapping)
    if write_page is None:
        raise RefusedError(406, "Unsupported mapping.")
    with open(source, "rb") as file:  # noqa: PTH123 - the path comes as a text, from our own process.
        if b"%PDF-" not in file.read(1024):
            raise RefusedError(415, "The file is not a PDF.")
    try:
        document = pypdfium2.PdfDocument(source)
    except pypdfium2.PdfiumError as error:
        # One without any page counts as damaged.
        is_locked = "password" in str(error).lower() or "security" in str(error).lower()
        raise RefusedError(422, "The PDF is encrypted." if is_locked else "The PDF is damaged.") from error
    with closing(document):
        count = len(document)
        if count > PAGES_MAX:
            raise RefusedError(422, "The PDF has too many pages.")
        out.write(
            f'<?xml version="1.0" encoding="utf-8"?>\n<document mapping={quoteattr(mapping)} pages="{count}">\n'
        )
        for number in range(count):
            _page(document, number, out, write_page)
        out.write("</document>\n")
    return count


def _page(document: pypdfium2.PdfDocument, number: int, out: TextFile, write: PageWriter) -> None:
    try:
        page = document[number]
        text = page.get_textpage()
    except pypdfium2.PdfiumError as error:
        raise RefusedError(422, f"Page {number + 1} of the PDF is damaged.") from error
    # Closed page by page: the next one may need the memory.
    with closing(page), closing(text):
        width, height = page.get_size()
        out.write(f'<page number="{number + 1}" width="{_points(width)}" height="{_points(height)}">')
        write(text, height, out)
        out.write("</page>\n")


def _write_text(text: pypdfium2.PdfTextPage, _height: float, out: TextFile) -> None:
    out.write(escape(_legal(text.get_text_range()).replace("\r\n", "\n")))


def _write_layout(text: pypdfium2.PdfTextPage, height: float, out: TextFile) -> None:
    for index in range(text.count_rects()):
        left, bottom, right, top = text.get_rect(index)
        words = _legal(text.get_text_bounded(left, bottom, right, top)).strip()
        if not words:
            continue
        place = {"x": left, "y": height - top, "width": right - left, "height": top - bottom}
        attributes = " ".join(f'{name}="{_points(value)}"' for name, value in place.items())
        out.write(f"\n  <line {attributes}>{escape(words)}</line>")


def _points(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _legal(text: str) -> str:
    return _ILLEGAL.sub("", text)


PageWriter = Callable[[pypdfium2.PdfTextPage, float, TextFile], None]
MAPPINGS: Final[dict[str, PageWriter]] = {"text": _write_text, "layout": _write_layout}
