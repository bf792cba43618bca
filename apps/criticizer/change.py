# SPDX-License-Identifier: Apache-2.0
"""What is reviewed: an order, and its change, file by file and line by line.

Parses unified diffs, from git or from mailed patches. Text outside the diff is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

_HUNK: Final = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS: Final = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


class GitRange(Struct, frozen=True, tag="git", forbid_unknown_fields=True):
    """A range of revisions in a local repository, such as `main..topic`."""

    repo: str
    range: str


class PatchUrl(Struct, frozen=True, tag="url", forbid_unknown_fields=True):
    """A patch on a server."""

    url: str


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of a job: what to review, and whom to notify."""

    source: GitRange | PatchUrl
    notify: tuple[str, ...] = ("terminal",)
    """The recipients, each `terminal`, `webhook`, `webhook:URL` or `smtp:ADDRESS`."""


class ChangedFile(Struct, frozen=True):
    """One file of a change."""

    path: str
    lines: tuple[tuple[int, str, str], ...] = ()
    """The number in the new file (for a removed line: its position), `+`, `-` or a space, and the text."""
    content: str | None = None
    """The whole new file, if known."""

    @property
    def added(self) -> frozenset[int]:
        """The numbers of the new lines."""
        return frozenset(number for number, sign, _ in self.lines if sign == "+")


class Change(Struct, frozen=True):
    """The output of `fetch`."""

    title: str
    notify: tuple[str, ...]
    files: tuple[ChangedFile, ...]


def parse_patch(text: str) -> tuple[ChangedFile, ...]:
    """Return the changed files of a diff, with their lines; a deleted or only renamed file has nothing to review."""
    lines = iter(text.split("\n"))
    found: dict[str, list[tuple[int, str, str]]] = {}
    new: set[str] = set()
    path: str | None = None
    is_new = False
    for line in lines:
        if line.startswith("--- "):
            is_new = line.startswith("--- /dev/null")
        elif line.startswith("+++ "):
            path = _path(line[4:])
        elif path is not None and (hunk := _HUNK.match(line)) is not None:
            found.setdefault(path, []).extend(_lines_of(hunk, lines))
            (new.add if is_new else new.discard)(path)
    return tuple(
        ChangedFile(path, tuple(of), _content(of) if path in new else None) for path, of in found.items()
    )


def _content(lines: Iterable[tuple[int, str, str]]) -> str:
    """Return a new file, which its patch contains whole."""
    return "".join(f"{text}\n" for _, sign, text in lines if sign == "+")


def _lines_of(hunk: re.Match[str], lines: Iterator[str]) -> Iterator[tuple[int, str, str]]:
    """Yield a hunk's lines; the header has their number, so that no line is mistaken for a header."""
    old, new = (1 if count is None else int(count) for count in hunk.group(1, 3))
    number = int(hunk[2])
    while old > 0 or new > 0:
        line = next(lines, None)
        if line is None:
            return
        sign = line[:1] or " "
        if sign == "\\":  # "\ No newline at end of file" is no line
            continue
        yield number, sign, line[1:]
        old -= sign != "+"
        new -= sign != "-"
        number += sign != "-"


def _path(text: str) -> str | None:
    """Return the path of a `+++` line: without the prefix, a date after a tab, and git's quoting; None for /dev/null."""
    if text.startswith('"') and text.endswith('"'):
        raw = _ESCAPE.sub(_unescaped, text[1:-1].encode())
        text = raw.decode("utf-8", "replace")
    else:
        text = text.partition("\t")[0].rstrip("\r")
    return None if text == "/dev/null" else text.removeprefix("b/")


def _unescaped(found: re.Match[bytes]) -> bytes:
    text = found[1]
    return bytes([int(text, 8) & 0xFF]) if len(text) == 3 else _LETTERS.get(text, text)
