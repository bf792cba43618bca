# SPDX-License-Identifier: Apache-2.0
"""A folder with one JSON file per dead letter.

A file is there whole or not at all: it is written beside its place, made durable, and moved there. Only its owner can read it. No
name that came with a job can lead out of the folder, and no letter ever takes the place of another one.
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
from redrive.sinks.base import Input, Payload, SunkLetter, as_members, checked_input, checked_payload

LAYOUT: Final = "{pipeline}/{stage}/{job_id}-{round}.json"
NAME_MAX: Final = 100
"""Characters of one part of a path; longer ones are cut and told apart by a hash."""
FOLDER_MODE: Final = 0o700

_FIELDS: Final = frozenset(
    "delivery letter_id job_id dispatch round pipeline stage key owner code category error_class fingerprint".split()
)
_TELLING: Final = frozenset({"delivery", "letter_id", "job_id"})
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._~-]")
# Names that mean a device on some systems, with any ending.
_DEVICES: Final = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")

Layout = str | Callable[[SunkLetter], str]
"""Where a letter's file stands in the folder, parts divided by `/`: a text with fields of the letter in braces, or a function."""
Form = Callable[[SunkLetter], Mapping[str, object]]
"""What stands in a letter's file: a function that returns members that JSON can hold."""


class Files:
    """Writes each dead letter to a file of its own in `folder`; the same letter twice is one file.

    `layout` says which file: `"{stage}/{letter_id}.json"`, or a function of the letter for anything else. What a part may not hold
    is replaced, and a short hash is added so that two that look alike then are still two. `form` says what stands in it, where
    another system has a form of its own; the member `delivery` is added, because by it the sink knows its files again.
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
        self.name = name
        self.payload = checked_payload(f"Files({name}).payload", payload)
        self.input = checked_input(f"Files({name}).input", input)
        self._folder = _checked_folder(name, folder)
        self._layout = _checked(name, layout)
        self._form = _checked_form(name, form)

    def __repr__(self) -> str:
        asked = f", input={self.input!r}" if self.input != "exclude" else ""
        return f"Files({str(self._folder)!r}, name={self.name!r}, payload={self.payload!r}{asked})"

    def deliver(self, letter: SunkLetter) -> None:
        """Write one letter, durable when this returns.

        Raises:
            OSError: It could not be written; nothing but what was there before is there.
        """
        *folders, file = self._parts(letter)
        folder = self._folder
        _make_folder(folder)
        for part in folders:
            folder /= part
            _make_folder(folder)
            if folder.is_symlink():
                # Whoever can put a link there could have letters written anywhere.
                raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link; make it a folder", str(folder))
        target = folder / file
        if not _is_free_for(letter, target):
            target = folder / _beside(file, letter.delivery)
        members = {**self._form(letter), "delivery": letter.delivery}
        _write(target, msgspec.json.format(msgspec.json.encode(members), indent=2) + b"\n")

    def _parts(self, letter: SunkLetter) -> list[str]:
        """Return the parts of the path below the folder; each is a plain name."""
        if isinstance(self._layout, str):
            told = {name: safe_name(str(getattr(letter, name))) for name in _FIELDS}
            path = self._layout.format_map(told)
        else:
            path = self._layout(letter)
        parts = [safe_name(part) for part in path.split("/") if part]
        return parts or [f"{safe_name(letter.delivery)}.json"]


def safe_name(text: str) -> str:
    """Return a text as one part of a path, on any system: itself when it can be one, else what is left of it and a hash."""
    plain = _UNSAFE.sub("_", text).lstrip(".~-")[:NAME_MAX].rstrip(".")
    if plain == text and plain and not _DEVICES.fullmatch(plain):
        return plain
    stem, dot, ending = plain.rpartition(".")
    if not stem or len(ending) > 8:
        stem, dot, ending = plain, "", ""
    return f"{stem}~{_hash(text)}{dot}{ending}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def _beside(file: str, delivery: str) -> str:
    """Return another name for a file whose name is taken by another letter."""
    path = Path(file)
    return f"{path.stem}~{_hash(delivery)}{path.suffix}"


def _is_free_for(letter: SunkLetter, target: Path) -> bool:
    """Say whether a letter may stand there: nothing does, or this letter already."""
    try:
        there = msgspec.json.decode(target.read_bytes(), type=dict[str, object])
    except FileNotFoundError:
        return True
    except msgspec.DecodeError:
        return False
    return there.get("delivery") == letter.delivery


def _make_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into; one that is there stays as it is."""
    if folder.is_dir():
        return
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=FOLDER_MODE)
            _sync_folder(each.parent)


def _write(target: Path, text: bytes) -> None:
    """Put a whole file in its place, durably. `mkstemp` makes files that only their owner can read."""
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
    """Make the names in a folder durable; where folders cannot be opened, the system does it by itself."""
    if os.name == "nt":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_file(path: str | Path, content: bytes) -> None:
    """Put a whole file in its place, durably, for its owner alone; whoever reads it meanwhile reads the one before.

    Folders that are missing are made, for their owner alone too.

    Raises:
        OSError: It could not be written; what was there before is there.
    """
    target = Path(path)
    _make_folder(target.parent)
    _write(target, content)


def _checked_folder(name: str, folder: str | Path) -> Path:
    if not isinstance(folder, str | Path) or not str(folder):
        raise ConfigurationError(
            field=f"Files({name}).folder",
            value=folder,
            rule="must be the path of a folder",
            fix='"." is the present one; "dead-letters" is one in it.',
        )
    return Path(folder)


def _checked_form(name: str, form: Form) -> Form:
    if not callable(form):
        raise ConfigurationError(
            field=f"Files({name}).form",
            value=form,
            rule="must be a function of the letter",
            fix='form=lambda letter: {"id": letter.letter_id, "why": letter.message}.',
        )
    return form


def _checked(name: str, layout: Layout) -> Layout:
    """Return the layout, or refuse one that cannot tell letters apart or asks for what a letter does not have."""
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
        rule = f"may hold, in plain braces, only {', '.join(sorted(_FIELDS))}"
        raise ConfigurationError(field=field, value=layout, rule=rule, fix=fix)
    if not used & _TELLING:
        rule = f"must hold one of {', '.join(sorted(_TELLING))}, to tell letters apart"
        raise ConfigurationError(field=field, value=layout, rule=rule, fix=fix)
    return layout
