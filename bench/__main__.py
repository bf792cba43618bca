# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks: `python -m bench [CASE ...]`, all cases by default.

Each case prints a table and writes its figures to `bench/results/<case>.json`. Times depend on the machine; ratios within one run
are what counts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from pathlib import Path

from bench.goals import verdicts
from bench.measure import Figure, show

CASES = (
    "call",
    "classify",
    "redact",
    "drain",
    "pickup",
    "slow",
    "size",
    "letters",
    "batches",
    "limits",
    "telemetry",
    "postgres",
    "space",
)
RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    """Run the named cases."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "cases",
        nargs="*",
        choices=[*CASES, []],
        metavar="CASE",
        help=f"one of {', '.join(CASES)}; default: all",
    )
    chosen = parser.parse_args(arguments).cases or list(CASES)
    sys.stdout.write(f"Python {platform.python_version()} on {platform.machine()}\n\n")
    for name in chosen:
        # Imported only now: contenders run in processes that import this module anew, and need none of the other cases.
        figures: list[Figure] = importlib.import_module(f"bench.{name}").run()
        sys.stdout.write(show(name, figures) + verdicts(figures))
        sys.stdout.flush()
        _keep(name, figures)
    return 0


def _keep(name: str, figures: list[Figure]) -> None:
    RESULTS.mkdir(exist_ok=True)
    rows = [
        {"group": f.group, "name": f.name, f.unit: round(f.amount, 1), "ratio": round(f.ratio, 3)}
        for f in figures
    ]
    (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
