# SPDX-License-Identifier: Apache-2.0
"""The tables that jobs and dead letters have in common: their attempts and what operators did. Nothing is read here."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.cli.output.tables import print_table
from redrive.ops.audit import Operation


def print_attempts(attempts: Sequence[dict[str, object]]) -> None:
    """Print attempts with their outcome and why it came so."""
    rows = [
        {
            **attempt,
            "duration": f"{attempt['duration']:.3g} s",
            "sentence": attempt["sentence"] or attempt["message"] or attempt["reason"],
        }
        for attempt in attempts
    ]
    print_table(rows, ("dispatch", "stage", "round", "attempt", "outcome", "code", "duration", "sentence"))


def print_operations(operations: Sequence[Operation]) -> None:
    """Print what operators did."""
    print_table(operations, ("at", "actor", "verb", "subject", "reason"))
