# SPDX-License-Identifier: Apache-2.0
"""The process that opens PDFs: `python -m apps.pdf2xml.gateway.child MEMORY SECONDS`.

It says that it is ready, then takes one order per line on stdin and answers each with one line on stdout. Its memory is limited
for good, its processor time for each order; a file that needs more ends the process. It ends with its parent, whose death closes
stdin.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import BinaryIO, Final

import msgspec

from apps.pdf2xml.gateway.mappings import RefusedError, convert

READY: Final = b"ready\n"
OUTPUT_MAX: Final = 200_000_000
"""Bytes of the XML of one file."""


class Order(msgspec.Struct):
    """What to convert, and where to."""

    source: str
    target: str
    mapping: str


class Answer(msgspec.Struct):
    """How it went: the number of pages, or an HTTP status with a message for the user."""

    pages: int = 0
    status: int = 200
    message: str = ""


class _Limited:
    """A text file with a limit."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file = file
        self._left = limit

    def write(self, text: str) -> None:
        data = text.encode()
        self._left -= len(data)
        if self._left < 0:
            raise RefusedError(413, "The XML would be too large.")
        self._file.write(data)


def carry_out(order: Order, limit: int = OUTPUT_MAX) -> Answer:
    """Convert one file."""
    try:
        with open(order.target, "wb") as file:  # noqa: PTH123 - as in mappings.
            return Answer(pages=convert(order.source, order.mapping, _Limited(file, limit)))
    except RefusedError as error:
        return Answer(status=error.status, message=error.message)
    except MemoryError:
        return Answer(status=422, message="The PDF needs too much memory.")
    except OSError:
        # A full disk, for example: the file is not to blame, and may be sent again.
        return Answer(status=503)


def main(memory: int, seconds: int) -> None:
    """Carry out orders until there are no more."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    # Whatever a library prints must not be taken for an answer.
    os.dup2(2, 1)
    answers.write(READY)
    for line in sys.stdin.buffer:
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds + 1, resource.RLIM_INFINITY))
        order = msgspec.json.decode(line, type=Order)
        answers.write(msgspec.json.encode(carry_out(order)) + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
