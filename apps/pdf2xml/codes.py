# SPDX-License-Identifier: Apache-2.0
"""The codes, the same in answers, job records, logs and on the page: what each takes, its HTTP status, and its line for people.

The lines are the only text about a failure that a user sees. A message of the gateway may follow the line of `GW_4XX`: it
was redacted when it was stored, and is cut here.
"""

# ruff: noqa: RUF001 - the lines have the apostrophes that were asked for.
from __future__ import annotations

import re
from typing import Final, Literal

from redrive import Category, CodeSet, OwnCode

Mode = Literal["hold", "fail_fast"]
GATEWAY_TEXT_MAX: Final = 200
# A path, an address or a stack: such a message is for operators, and only in the log.
_UNSAFE: Final = re.compile(r"[/\\]|Traceback|\bline \d")

LINES: Final = {
    "NOT_PDF": "Only PDF files are supported.",
    "TOO_LARGE": "File exceeds 50 MB limit.",
    "GW_4XX": "Couldn’t convert this file with the selected mapping.",
    "GW_5XX": "Converter service is having an issue. We’ll retry shortly.",
    "GW_TIMEOUT": "Conversion is taking too long. We’ll retry.",
    "IO_ERROR": "Temporary storage issue. We’ll retry.",
    "NOT_READY": "Conversion not finished yet.",
    "EXPIRED": "File was removed by retention. Re-upload to regenerate.",
    "FORBIDDEN": "This file isn’t yours.",
    "UNKNOWN": "Something went wrong. We have logged it.",
}
PAUSED: Final = "Gateway busy, paused. Will retry automatically."
STATUSES: Final = {
    "NOT_PDF": 400,
    "TOO_LARGE": 413,
    "IO_ERROR": 500,
    "NOT_READY": 409,
    "EXPIRED": 404,
    "FORBIDDEN": 403,
    "UNKNOWN": 500,
}
"""The HTTP status of each code that a request can be answered with."""


def _code(name: str, takes: list[str | Category | int | range], **options: object) -> OwnCode:
    return OwnCode(name, takes, line=LINES[name], **options)  # type: ignore[arg-type]


def codes(mode: Mode) -> CodeSet:
    """Return the code set; a refusal by a breaker that fails fast is final, one by a breaker that holds is not."""
    return CodeSet(
        "pdf2xml",
        [
            _code("GW_5XX", ["BREAKER_OPEN"], retryable=mode == "hold"),
            # By status first: a 408 is a timeout of the gateway's own, and a 501 may be a proxy in its place.
            _code("GW_5XX", [408, 425, 429, range(500, 600)], retryable=True, stages=["convert"]),
            _code("GW_4XX", [range(400, 500)], retryable=False, stages=["convert"]),
            _code("GW_TIMEOUT", ["NETWORK_TIMEOUT", "TIMEOUT"], retryable=True, stages=["convert"]),
            _code("GW_5XX", [Category.NETWORK], retryable=True, stages=["convert"]),
            _code("IO_ERROR", ["DISK_FULL"], retryable=False),
            # One retry: the second failure with this code is the last.
            _code("IO_ERROR", [Category.IO, Category.CAPACITY], retryable=True, max_attempts=2),
            *(_code(name, []) for name in ("NOT_PDF", "TOO_LARGE", "NOT_READY", "EXPIRED", "FORBIDDEN")),
        ],
        otherwise=_code("UNKNOWN", []),
    )


def line_of(code: str, gateway_message: str = "") -> str:
    """Return what a user reads about a failure."""
    line = LINES.get(code, LINES["UNKNOWN"])
    if code != "GW_4XX" or not gateway_message:
        return line
    text = re.sub(r"\s+", " ", gateway_message).strip()
    if _UNSAFE.search(text):
        return line
    return f"{line} {text if len(text) <= GATEWAY_TEXT_MAX else text[: GATEWAY_TEXT_MAX - 1] + '…'}"
