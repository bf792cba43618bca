# SPDX-License-Identifier: Apache-2.0
"""Proxy pools: which proxy an attempt uses. Pure; the clients are opened in `download`.

An attempt takes the next proxy: all of the first tier, then those of the further tiers, then the fallback pools in turn. Tasks
start at different proxies of a tier, so that it is used evenly. After the last one the pool is exhausted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apps.fetchbox.settings import Pool


class ProxiesExhaustedError(Exception):
    """Every proxy of a pool and its fallbacks was tried."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy: its place, by which errors and metrics name it, and its URL, which may hold a password."""

    name: str
    pool: str
    url: str


def proxies_of(pools: Mapping[str, Pool], pool: str, turn: int) -> list[Proxy]:
    """Return the proxies of a pool and its fallbacks in the order of attempts; `turn` differs from task to task."""
    found: list[Proxy] = []
    name = pool
    while name:
        number = 0
        for tier in pools[name].tiers:
            named = [
                Proxy(f"proxies/{name}#{number + place}", name, url)
                for place, url in enumerate(tier, start=1)
            ]
            number += len(tier)
            start = turn % len(named) if named else 0
            found += named[start:] + named[:start]
        name = pools[name].fallback
    return found
