# SPDX-License-Identifier: Apache-2.0
"""What commands read: a file that somebody names, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from redrive.cli.input.items import STANDARD_INPUT
from redrive.errors import ConfigurationError


@contextmanager
def opened(source: str, option: str = "FILE") -> Generator[BinaryIO]:
    """Open a file to read, or standard input; what cannot be read is refused."""
    if source == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        file = Path(source).open("rb")  # noqa: SIM115 - closed below; only opening it is guarded.
    except OSError as error:
        raise ConfigurationError(
            field=option, value=source, rule="cannot be read", fix=f"{error.strerror}."
        ) from error
    with file:
        yield file


def read_from(source: str, option: str) -> bytes:
    """Return all of a file, or of standard input."""
    with opened(source, option) as file:
        return file.read()
