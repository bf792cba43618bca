# SPDX-License-Identifier: Apache-2.0
"""Settling, as far as others than a store do it."""

from __future__ import annotations

from redrive.store.statements.statement import statement


@statement
def touch_group(
    *, fingerprint: str, lane: int, code: str, category: str, exception: str | None, now: float
) -> None: ...
