# SPDX-License-Identifier: Apache-2.0
"""The filter over dead letters as people give it: written as the options of a command."""

from __future__ import annotations

import shlex
from typing import Final

import msgspec

from redrive.core.units import iso_text
from redrive.engine.replay.filter import LetterFilter

_INSTANTS: Final = {"since", "until"}


def filter_options(which: LetterFilter) -> str:
    """Return a filter as command line options; not broader than it is, because somebody will vouch for all of it.

    A command takes the id of one letter, and no filter with it: several ids become `LETTER`.
    """
    if which.ids is not None:
        return str(which.ids[0]) if len(which.ids) == 1 else "LETTER"
    given = msgspec.structs.asdict(which)
    return " ".join(_option(name, value) for name, value in given.items() if value is not None)


def _option(name: str, value: object) -> str:
    if value is True:
        return f"--{name}"
    text = iso_text(value) if name in _INSTANTS else str(value)
    return f"--{name} {shlex.quote(text)}"
