# SPDX-License-Identifier: Apache-2.0
"""A small PDF of two pages, so that a new installation has something to show."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from apps.pdf2xml.jobs import Jobs
from apps.pdf2xml.uploads import Form

PAGES: Final = (
    (
        "PDF to XML",
        "This sample was uploaded for you.",
        "Drop a PDF of your own on the page to convert it, too.",
    ),
    ("Second page", "Every page becomes an element of the XML."),
)


def sample_pdf(pages: Sequence[Sequence[str]] = PAGES) -> bytes:
    """Return a PDF with these lines of plain ASCII on its pages."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, lines in enumerate(pages):
        shown = " T* ".join(f"({line}) Tj" for line in lines)
        stream = f"BT /F1 18 Tf 28 TL 72 760 Td {shown} ET"
        fonts = "<< /Font << /F1 3 0 R >> >>"
        page = f"/Parent 2 0 R /MediaBox [0 0 595 842] /Resources {fonts} /Contents {5 + 2 * number} 0 R"
        objects += [
            f"<< /Type /Page {page} >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    body, places = "%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    count = len(objects) + 1
    end = f"xref\n0 {count}\n0000000000 65535 f \n{table}trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return (body + end).encode("ascii")


def submit_sample(jobs: Jobs, owner: str) -> None:
    """Submit the sample for a visitor, once with each mapping."""
    data = sample_pdf()
    for mapping in ("text", "layout"):
        draft = jobs.files.new_draft()
        draft.write_bytes(data)
        form = Form("sample.pdf", mapping, len(data), hashlib.sha256(data).hexdigest())
        jobs.submit(owner, form, draft)
