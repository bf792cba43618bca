# SPDX-License-Identifier: Apache-2.0
"""Which faults have fired, by their place in the list: in memory, or in a folder for processes that may die.

`claim` returns whether a fault has not fired for a run before, and is true only for the first caller. `add` counts that it fired,
`count` returns how often it has.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import TypeAlias


class _Memory:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimed: set[tuple[int, str]] = set()
        self._counted: Counter[int] = Counter()

    def claim(self, place: int, run: str) -> bool:
        with self._lock:
            is_new = (place, run) not in self._claimed
            self._claimed.add((place, run))
        return is_new

    def add(self, place: int) -> None:
        with self._lock:
            self._counted[place] += 1

    def count(self, place: int) -> int:
        return self._counted[place]


class _Folder:
    """A file per claim, made by the first process, and a byte per firing: both are shared by processes and survive a crash."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def claim(self, place: int, run: str) -> bool:
        try:
            (self._folder / f"{place}-{run}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def add(self, place: int) -> None:
        with (self._folder / f"{place}.fired").open("ab") as file:
            file.write(b".")

    def count(self, place: int) -> int:
        file = self._folder / f"{place}.fired"
        return file.stat().st_size if file.exists() else 0


Marks: TypeAlias = _Memory | _Folder


def marks_in(folder: str | os.PathLike[str] | None) -> Marks:
    """Return marks in a folder, which is made if necessary; without a folder, in memory."""
    return _Memory() if folder is None else _Folder(Path(folder))
