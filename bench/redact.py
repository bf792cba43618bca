# SPDX-License-Identifier: Apache-2.0
"""What it costs to redact a stack trace of four kilobytes, a log line, and a megabyte of hostile text."""

from __future__ import annotations

import itertools
import random

from bench.measure import Figure, compare
from redrive import redact

FRAME = '  File "/srv/app/orders/{n}.py", line {n}, in handle_order_{n}\n    result = client.post(url, json=payload, timeout=30)\n'

STEMS = ("password", "token", "api_key", "secret", "session_id")


def run() -> list[Figure]:
    """Time the redactor on ordinary and on hostile text."""
    stack = "Traceback (most recent call last):\n" + "".join(FRAME.format(n=n) for n in range(100, 200))
    stack = stack[: stack.index("  File", 4_000)]
    numbers = itertools.count()
    hostile = ("password=" * 40 + "a@a@a@" * 40 + "-----BEGIN " * 20 + "eyJ" * 40 + "4111 " * 40) * 1_200
    drawn = random.Random(11)
    names = "".join(
        f"{drawn.choice(STEMS)}_{drawn.getrandbits(16)}={drawn.getrandbits(48):x}Zq\n" for _ in range(45_000)
    )
    return compare(
        "redact",
        {
            # No two are the same: what has been seen before is remembered.
            "a log line of 100 characters": lambda: redact(
                f"2026-11-15 12:00:00 INFO order {next(numbers)} took 3.2 s, request_id=req_8Zk1 status=200 retries=0 ok"
            ),
            "a stack of 4 KB": lambda: redact(f"{stack}RuntimeError: order {next(numbers)} failed"),
            "1 MB of hostile text that repeats itself": lambda: redact(hostile[:1_000_000]),
            "1 MB of names of secrets, no two alike": lambda: redact(names[:1_000_000]),
        },
    )
