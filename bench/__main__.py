# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks: `python -m bench [CASE ...]`, all cases by default.

Each case prints a table and writes its figures to `bench/results/<case>.json`. Times depend on the machine; ratios within one run
are what counts.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

from bench import call, classify, drain, redact
from bench.measure import Figure, show

CASES = {"call": call.run, "classify": classify.run, "redact": redact.run, "drain": drain.run}
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
        figures = CASES[name]()
        sys.stdout.write(show(name, figures))
        _keep(name, figures)
    return 0


def _keep(name: str, figures: list[Figure]) -> None:
    RESULTS.mkdir(exist_ok=True)
    rows = [
        {"group": f.group, "name": f.name, "nanoseconds": round(f.nanoseconds, 1), "ratio": round(f.ratio, 3)}
        for f in figures
    ]
    (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
