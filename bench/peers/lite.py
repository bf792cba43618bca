# SPDX-License-Identifier: Apache-2.0
"""litequeue: a WAL file with synchronous=NORMAL, which it sets itself; every `put` is a commit of its own, of a string."""

from __future__ import annotations

import json
from pathlib import Path

from litequeue import LiteQueue  # type: ignore[import-untyped]

from bench.measure import per_job
from bench.ours import PAYLOAD


def submit(folder: Path, *, jobs: int = 20_000) -> float:
    """Put one message after another."""
    queue = LiteQueue(str(folder / "lite.db"))

    def work() -> None:
        for _ in range(jobs):
            queue.put(json.dumps(PAYLOAD))

    return per_job(jobs, work)
