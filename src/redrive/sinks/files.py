# SPDX-License-Identifier: Apache-2.0
"""A folder with one JSON file per dead letter, which is written again with every change of the letter.

A file is written atomically: beside its place, made durable, and then moved there. Only its owner can read it. No name in a job
can lead out of the folder, and no letter ever overwrites another one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import string
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from redrive.errors import ConfigurationError
from redrive.sinks.base import Input, Payload, SunkLetter, as_members, check_values

LAYOUT: Final = "{pipeline}/{stage}/{job_id}-{round}.json"
NAME_MAX: Final = 100
"""Characters of one part of a path; a longer one is cut and gets a hash."""
FOLDER_MODE: Final = 0o700

_FIELDS: Final = frozenset(
    "identity letter_id job_id dispatch round pipeline stage key owner code category exception fingerprint".split()
)
_DISTINCT: Final = frozenset({"identity", "letter_id", "job_id"})
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._~-]")
# Names that mean a device on some systems, with any ending.
_DEVICES: Final = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")

Layout = str | Callable[[SunkLetter], str]
"""The path of a letter's file in the folder, parts divided by `/`: a text with fields of the letter in braces, or a function."""
Form = Callable[[SunkLetter], Mapping[str, object]]
"""The content of a letter's file: a function that returns members for JSON."""


class Files:
    """Writes each dead letter to a separate file in `folder`, and writes that file again whenever the letter changes.

    `layout` is the path of the file: `"{stage}/{letter_id}.json"`, or a function of what never changes in a letter. Characters that
    a part may not contain are replaced, and a short hash is added so that different names stay different. `form` is the content,
    for another system with its own format; the member `delivery` is added, by which the sink recognises its files.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        name: str = "files",
        payload: Payload = "exclude",
        input: Input = "exclude",  # noqa: A002 - the field of the letter has this name.
        layout: Layout = LAYOUT,
        form: Form = as_members,
    ) -> None:
        check_values(f"Files({name})", payload, input)
        self.name = name
        self.payload = payload
        self.input = input
        if not isinstance(folder, str | Path) or not str(folder):
            raise ConfigurationError(
                field=f"Files({name}).folder",
                value=folder,
                rule="must be the path of a folder",
                fix='"." is the current one; "dead-letters" is one in it.',
            )
        self._folder = Path(folder)
        self._layout = _checked(name, layout)
        if not callable(form):
            raise ConfigurationError(
                field=f"Files({name}).form",
                value=form,
                rule="must be a function of the letter",
                fix='form=lambda letter: {"id": letter.letter_id, "why": letter.message}.',
            )
        self._form = form

    def __repr__(self) -> str:
        asked = f", input={self.input!r}" if self.input != "exclude" else ""
        return f"Files({str(self._folder)!r}, name={self.name!r}, payload={self.payload!r}{asked})"

    def deliver(self, letter: SunkLetter) -> str:
        """Write one letter as it is now, durable when this returns; an older change does not replace a newer one.

        The receipt is the path of the file in the folder.

        Raises:
            OSError: It could not be written, and nothing has changed.
        """
        *folders, file = self._parts(letter)
        folder = self._folder
        _make_folder(folder)
        for part in folders:
            folder /= part
            _make_folder(folder)
            if folder.is_symlink():
                # A link there could have letters written anywhere.
                raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link; make it a folder", str(folder))
        target = folder / file
        there = _delivery_in(target)
        if there is not None and there.rpartition("-")[0] != letter.identity:
            # Its name is taken by another letter.
            target = target.with_name(f"{target.stem}~{_hash(letter.identity)}{target.suffix}")
            there = _delivery_in(target)
        if there is None or not _is_newer(there, letter):
            members = {**self._form(letter), "delivery": letter.delivery}
            _write(target, msgspec.json.format(msgspec.json.encode(members), indent=2) + b"\n")
        return target.relative_to(self._folder).as_posix()

    def _parts(self, letter: SunkLetter) -> list[str]:
        """Return the parts of the path below the folder; each is a plain name."""
        if isinstance(self._layout, str):
            fields = {name: safe_name(str(getattr(letter, name))) for name in _FIELDS}
            path = self._layout.format_map(fields)
        else:
            path = self._layout(letter)
        parts = [safe_name(part) for part in path.split("/") if part]
        return parts or [f"{safe_name(letter.identity)}.json"]


def safe_name(text: str) -> str:
    """Return a text as one part of a path, on any system: the text itself if it is safe, else its safe characters and a hash."""
    plain = _UNSAFE.sub("_", text).lstrip(".~-")[:NAME_MAX].rstrip(".")
    if plain == text and plain and not _DEVICES.fullmatch(plain):
        return plain
    stem, dot, ending = plain.rpartition(".")
    if not stem or len(ending) > 8:
        stem, dot, ending = plain, "", ""
    return f"{stem}~{_hash(text)}{dot}{ending}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def _delivery_in(target: Path) -> str | None:
    """Return what a file there was written for, empty if that is unknown; None if there is no file."""
    try:
        there = msgspec.json.decode(target.read_bytes(), type=dict[str, object])
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        return ""
    return str(there.get("delivery", ""))


def _is_newer(there: str, letter: SunkLetter) -> bool:
    """Return whether a file has a later change of the same letter: a worker may have hung before it wrote an older one."""
    identity, _, sequence = there.rpartition("-")
    return identity == letter.identity and sequence.isdecimal() and int(sequence) > letter.sequence


def _make_folder(folder: Path) -> None:
    """Make a folder that only its owner can open; an existing one stays as it is."""
    if folder.is_dir():
        return
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=FOLDER_MODE)
            _sync_folder(each.parent)


def _write(target: Path, text: bytes) -> None:
    """Write a file atomically and durably. `mkstemp` makes files that only their owner can read."""
    opened, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; a system whose folders cannot be opened does it by itself."""
    if os.name == "nt":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file atomically and durably, readable only by its owner; until then readers see the old one.

    Missing folders are made, accessible only to their owner, too.

    Raises:
        OSError: It could not be written, and nothing has changed.
    """
    target = Path(path)
    _make_folder(target.parent)
    _write(target, content)


def _checked(name: str, layout: Layout) -> Layout:
    """Return the layout, or refuse one that does not distinguish letters or has unknown fields."""
    field = f"Files({name}).layout"
    if callable(layout):
        return layout
    fix = f"{LAYOUT!r} is the default; a function of the letter can do anything else."
    if not isinstance(layout, str):
        raise ConfigurationError(field=field, value=layout, rule="must be a text or a function", fix=fix)
    try:
        parsed = [part[1:] for part in string.Formatter().parse(layout) if part[1] is not None]
    except ValueError:
        parsed = [("", "", None)]
    used = {str(part[0]) for part in parsed}
    if used - _FIELDS or any(part[1] or part[2] for part in parsed):
        rule = f"may contain, in plain braces, only {', '.join(sorted(_FIELDS))}"
        raise ConfigurationError(field=field, value=layout, rule=rule, fix=fix)
    if not used & _DISTINCT:
        rule = f"must contain one of {', '.join(sorted(_DISTINCT))}, to distinguish letters"
        raise ConfigurationError(field=field, value=layout, rule=rule, fix=fix)
    return layout
