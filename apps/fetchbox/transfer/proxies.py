# SPDX-License-Identifier: Apache-2.0
"""Proxy pools: which proxy an attempt uses. Pure; the clients are opened in `download`.

An attempt takes the next proxy: all of the first tier, then those of the further tiers, then the fallback pools in turn, and then
from the first one again: how often a download is tried is the policy's matter. Tasks start at different proxies of a tier, so that
it is used evenly. A pool is exhausted when each proxy had its turn and it is still a proxy that fails, not the origin.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from apps.fetchbox.settings import Pool

_PROXY_STATUSES: Final = frozenset({httpx.codes.BAD_GATEWAY, httpx.codes.GATEWAY_TIMEOUT})
"""What a proxy answers of its own accord; a 407 fails at once, as every 4xx that is not retryable."""


class ProxiesExhaustedError(Exception):
    """Every proxy of a pool and its fallbacks was tried, and the last one failed, too."""

    def __init__(self, pool: str = "", count: int = 0, error: Exception | None = None) -> None:
        super().__init__(f"all {count} proxies of the pool {pool} and its fallbacks were tried: {error}")


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy: its place, by which errors and metrics name it, and its URL, which may hold a password."""

    name: str
    pool: str
    url: str


def proxies_of(pools: Mapping[str, Pool], pool: str, turn: int) -> list[Proxy]:
    """Return the proxies of a pool and its fallbacks in the order of attempts; none without a pool.

    `turn` differs from task to task.
    """
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


def is_of_proxy(error: Exception) -> bool:
    """Return whether a download through a proxy failed because of the proxy: it was not reached, or it says that it could not."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in _PROXY_STATUSES
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        # Below a tunnel, a certificate is the origin's.
        return not _has_tls_problem(error)
    return isinstance(error, httpx.ProxyError)


def _has_tls_problem(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None
