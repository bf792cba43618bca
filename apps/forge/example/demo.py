# SPDX-License-Identifier: Apache-2.0
"""The demonstration: makes samples, starts the local server in a process of its own, and runs the example on them.

It measures the memory of its own process while the run works, because that must not grow with the number of samples.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from apps.forge.example.endpoint import KEY
from redrive import RunReport

ROOT: Final = Path(__file__).parents[3]
OPENINGS: Final = ("Hello,", "Hi there,", "Dear team,", "To whom it may concern:", "Hey,")
SENTENCES: Final = (
    "how do I change my address?",
    "why was I charged for two parcels, and what happens now?",
    "my lamp arrived broken, and nobody answered.",
    "I want a refund: it came late and it is wrong.",
    "thank you, the delivery was fast and the box was perfect.",
    "I love this shop, everything was great.",
    "please send the invoice to our office.",
    "the order contains four chairs and a table.",
)
FILTERED: Final = 100
"""One of so many samples has no words, and is filtered."""


def sample_lines(count: int, seed: int = 1) -> Iterator[bytes]:
    """Yield samples as JSON lines; the same ones for the same seed."""
    chance = random.Random(seed)  # noqa: S311 - made-up texts are no secret.
    for number in range(count):
        text = f"{chance.choice(OPENINGS)} {chance.choice(SENTENCES)} Order {number}."
        yield (
            msgspec.json.encode({"id": f"s{number}", "text": "..." if number % FILTERED == 7 else text})
            + b"\n"
        )


@contextmanager
def local_endpoint(rate: float) -> Generator[dict[str, int]]:
    """Start the server, and point the settings of this process at it; yields what it answered, once the block has ended."""
    command = [
        sys.executable,
        "-m",
        "apps.forge.example.endpoint",
        "--rate",
        str(rate),
        "--burst",
        str(rate / 4),
    ]
    settings = {"FORGE_LLM_KEY": KEY, "FORGE_LLM_MODEL": "forge-local"}
    answers: dict[str, int] = {}
    before = {name: os.environ.get(name) for name in (*settings, "FORGE_LLM_URL")}
    with subprocess.Popen(  # noqa: S603 - this repository's own module.
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            address = "" if server.stdout is None else server.stdout.readline().strip()
            os.environ.update({**settings, "FORGE_LLM_URL": address})
            yield answers
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            answers |= msgspec.json.decode(server.communicate("")[0] or "{}")


@dataclass
class Memory:
    """The memory of this process while a run works, at every tenth of it."""

    expected: int
    started_at: float = field(default_factory=time.monotonic)
    points: list[tuple[int, int]] = field(default_factory=list)
    """How many samples had ended, and how many MiB the process held then."""

    def look(self, report: RunReport) -> None:
        """Note the memory when another tenth of the samples has ended."""
        done = report.total - report.open
        if done * 10 // max(1, self.expected) >= len(self.points):
            self.points.append((done, resident_mib()))

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self.started_at


def resident_mib() -> int:
    """Return how much memory this process holds, in MiB; 0 where the system does not show it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
