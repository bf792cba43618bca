# SPDX-License-Identifier: Apache-2.0
"""Real PDFs, good and bad, made for the tests."""

from __future__ import annotations

import io
import zlib
from itertools import count

import pikepdf
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

_NUMBERS = count(1)


def pdf(*pages: str) -> bytes:
    """Return a PDF with these pages; it differs from every other one."""
    made = io.BytesIO()
    canvas = Canvas(made)
    canvas.setTitle(f"test {next(_NUMBERS)}")
    for text in pages or ("Hello, world.",):
        for place, line in enumerate(text.splitlines()):
            canvas.drawString(72, 760 - 20 * place, line)
        canvas.showPage()
    canvas.save()
    return made.getvalue()


def long_pdf(pages: int) -> bytes:
    return pdf(*(f"This is page {number}." for number in range(1, pages + 1)))


def japanese_pdf(text: str) -> bytes:
    pdfmetrics.registerFont(UnicodeCIDFont("HeiseiMin-W3"))
    made = io.BytesIO()
    canvas = Canvas(made)
    canvas.setFont("HeiseiMin-W3", 16)
    canvas.drawString(72, 760, text)
    canvas.save()
    return made.getvalue()


def encrypted_pdf() -> bytes:
    made = io.BytesIO()
    with pikepdf.open(io.BytesIO(pdf("secret"))) as document:
        document.save(made, encryption=pikepdf.Encryption(owner="owner", user="user"))
    return made.getvalue()


def empty_pdf() -> bytes:
    """Return a PDF without pages."""
    made = io.BytesIO()
    with pikepdf.new() as document:
        document.save(made)
    return made.getvalue()


def truncated_pdf() -> bytes:
    return pdf("cut off")[:200]


def bomb_pdf(megabytes: int) -> bytes:
    """Return a small PDF whose one content stream unpacks to so many megabytes, twice deflated."""
    made = io.BytesIO()
    packer = zlib.compressobj(9)
    block = b"q " * 500_000
    packed = b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()
    with pikepdf.new() as document:
        page = document.add_blank_page(page_size=(200, 200))
        twice = pikepdf.Array([pikepdf.Name.FlateDecode, pikepdf.Name.FlateDecode])
        stream = pikepdf.Stream(document, b"")
        stream.write(zlib.compress(packed, 9), filter=twice)
        page.Contents = stream
        # Otherwise the stream would be unpacked and packed again.
        document.save(made, compress_streams=False, stream_decode_level=pikepdf.StreamDecodeLevel.none)
    return made.getvalue()
