# SPDX-License-Identifier: Apache-2.0
"""The processes of the fault tests: `python -m tests.faults.driver` starts workers, and starts another for each that dies.

It imports redrive once and forks, so that a worker is there within milliseconds of the one it replaces. What happens is told in
the file `--told`: a line `start PID` or `end PID CODE` each. It ends when every worker has ended by itself; SIGTERM is passed on.
A file of `--clocks` holds one number per worker: the seconds by which its wall clock is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import mmap
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path
from typing import cast

from redrive import connect
from redrive.engine.clock import SystemClock
from redrive.engine.guard.breakers import Breakers
from redrive.engine.runtime import CURRENT, Runtime
from redrive.store.sqlite.store import SqliteStore
from tests.faults import flows, leaky

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG: nothing of a test that was interrupted stays behind."""

PAGES_PER_COMMIT = 10
"""About so many pages one commit of a busy worker touches."""


class WrongClock(SystemClock):
    """The machine's clocks, the wall clock moved by what stands in a file."""

    __slots__ = ("_at", "_map")

    def __init__(self, file: Path, place: int) -> None:
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 0)
        self._at = 8 * place

    def wall(self) -> float:
        return time.time() + float(struct.unpack_from("d", self._map, self._at)[0])


def main() -> int:
    options = arguments()
    die_with_parent()
    herd = Keeper(options)
    signal.signal(signal.SIGTERM, herd.pass_on)
    for place in range(options.workers):
        herd.start(place)
    return herd.keep()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--told", type=Path, required=True)
    parser.add_argument("--pipelines", default="steps")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--until-idle", action="store_true")
    parser.add_argument("--once", action="store_true", help="start nobody anew")
    parser.add_argument("--clocks", type=Path)
    parser.add_argument("--checkpoint", type=int, help="fold the log back after about so many commits")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


class Keeper:
    """Starts workers and keeps their number."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._places: dict[int, int] = {}
        self._is_ending = False

    def start(self, place: int) -> None:
        child = os.fork()
        if not child:
            code = 1
            try:
                die_with_parent()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                code = work(self._options, place)
            except Exception:
                logging.getLogger("driver").exception("the worker ended by an error")
            finally:
                sys.stderr.flush()
                os._exit(code)
        self._places[child] = place
        self._tell(f"start {child}")

    def keep(self) -> int:
        """Replace workers that die, until all have ended by themselves; return the first exit code that is not 0."""
        worst = 0
        while self._places:
            child, status = os.wait()
            place = self._places.pop(child)
            code = os.waitstatus_to_exitcode(status)
            self._tell(f"end {child} {code}")
            if code and not self._options.once and not self._is_ending:
                self.start(place)
            elif code != -signal.SIGTERM:
                # One that was stopped before it took signals held no job yet; the supervisor of `redrive worker` sees it so too.
                worst = worst or code
        return worst

    def pass_on(self, number: int, _frame: object) -> None:
        self._is_ending = True
        for child in self._places:
            os.kill(child, number)

    def _tell(self, line: str) -> None:
        with self._options.told.open("a", encoding="utf-8") as told:
            told.write(line + "\n")


def work(options: argparse.Namespace, place: int) -> int:
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.WARNING)
    if options.clocks is not None:
        clock = WrongClock(options.clocks, place)
        CURRENT.set(Runtime(clock, random.Random(), Breakers(clock)))
    known = {**vars(flows), **vars(leaky)}
    pipelines = [known[name] for name in options.pipelines.split(",")]
    with connect(options.database) as rd:
        if options.checkpoint is not None:
            store = cast("SqliteStore", rd.store)
            store._db.execute(f"PRAGMA wal_autocheckpoint = {options.checkpoint * PAGES_PER_COMMIT}")
        rd.work(
            pipelines, concurrency=options.concurrency, lease=options.lease, until_idle=options.until_idle
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
