# SPDX-License-Identifier: Apache-2.0
"""Run many seeds of the simulation: `python -m tests.simulation FIRST COUNT`; prints the seeds that broke a promise."""

from __future__ import annotations

import logging
import sys

from .limited_world import LimitedWorld, limit_breaches
from .replay_world import ReplayWorld, replay_breaches
from .test_runs import RunWorld, run_breaches
from .world import Faults, World, breaches


def main(first: int, count: int) -> int:
    """Run the seeds, harder than the tests do."""
    logging.disable(logging.CRITICAL)
    bad = 0
    for seed in range(first, first + count):
        world = World(seed, faults=Faults(0.04, 0.04, 0.008, 0.01))
        world.run()
        replayed = ReplayWorld(seed, faults=Faults(0.04, 0.04, 0.008, 0.01))
        replayed.run()
        counted = RunWorld(seed)
        counted.run()
        limited = LimitedWorld(seed)
        limited.run()
        found = breaches(world) + breaches(replayed) + replay_breaches(replayed)
        found += run_breaches(counted) + limit_breaches(limited)
        bad += bool(found)
        for breach in found:
            sys.stdout.write(f"seed {seed}: {breach}\n")
    sys.stdout.write(f"{count} seeds from {first}: {bad} broke a promise\n")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
