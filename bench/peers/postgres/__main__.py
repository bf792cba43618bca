# SPDX-License-Identifier: Apache-2.0
"""Run one contest: `python -m bench.peers.postgres drain|pickup MODULE '{"url": ...}'`; prints the figures as JSON on its last line."""

from __future__ import annotations

import json
import os
import sys

from bench.peers.postgres.contest import Contest, drain, pickup


def main() -> None:
    """Run it, and leave at once: what peers have started must not hold the process."""
    what, module, asked = sys.argv[1:]
    contest = Contest(**json.loads(asked))
    name = f"bench.peers.postgres.{module}"
    figures = pickup(name, contest) if what == "pickup" else [drain(name, contest)]
    sys.stdout.write("\n" + json.dumps(figures) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
