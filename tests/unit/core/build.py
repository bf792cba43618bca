# SPDX-License-Identifier: Apache-2.0
"""Factories for the values that tests of the core are about."""

from __future__ import annotations

from msgspec.structs import replace

from redrive.core import taxonomy
from redrive.core.classify import TypeRules, classify, lineage_of
from redrive.core.failure import Code, Failure


def failure(code: Code = taxonomy.NETWORK_TIMEOUT, /, **changes: object) -> Failure:
    """Build a failure as the classifier would for this code."""
    plain = Failure(
        code=code.name,
        category=code.category,
        retryable=code.retryable.holds(idempotent=False),
        severity=code.severity,
        message="it broke",
        exception="builtins.OSError",
        lineage=("OSError", "Exception", "BaseException"),
        rule="a test",
        canonical=code.name,
        is_reachability=code.is_reachability,
        max_attempts=code.max_attempts,
        line=code.line,
        hint=code.hint,
    )
    return replace(plain, **changes)


def ruleless(exc: BaseException, *, now: float = 0.0) -> Failure:
    """Classify with no rules at all."""
    return classify(exc, lambda kind: TypeRules((), lineage_of(kind)), now)
