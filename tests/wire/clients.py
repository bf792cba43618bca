# SPDX-License-Identifier: Apache-2.0
"""One GET with each general HTTP client, its own retries and the environment's settings switched off.

Every function returns normally only if the client was content; otherwise it lets the client's exception through.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final

import aiohttp
import httpx
import httpx2
import requests
import urllib3

PATIENT_S: Final = 30.0
"""A timeout that no test is meant to reach."""
HASTY_S: Final = 0.1
"""A timeout that a stalling server is meant to run into; on a slow machine connecting may run into it, which means the same."""


@dataclass(frozen=True)
class Call:
    """What to ask for, and how."""

    url: str
    timeout: float = PATIENT_S
    ca_file: str | None = None
    proxy: str | None = None

    def trust(self) -> ssl.SSLContext:
        """Return a context that trusts the given authority only, or the usual ones."""
        return _trust(self.ca_file)


@cache
def _trust(ca_file: str | None) -> ssl.SSLContext:
    # Loading the usual authorities takes longer than most of these tests.
    return ssl.create_default_context(cafile=ca_file)


def _httpx_like(library: ModuleType) -> Callable[[Call], None]:
    def get(call: Call) -> None:
        with library.Client(
            verify=call.trust(),
            timeout=call.timeout,
            proxy=call.proxy,
            follow_redirects=True,
            trust_env=False,
        ) as client:
            client.get(call.url).raise_for_status()

    return get


def _httpx_async(library: ModuleType) -> Callable[[Call], None]:
    async def get(call: Call) -> None:
        async with library.AsyncClient(
            verify=call.trust(),
            timeout=call.timeout,
            proxy=call.proxy,
            follow_redirects=True,
            trust_env=False,
        ) as client:
            (await client.get(call.url)).raise_for_status()

    return lambda call: asyncio.run(get(call))


def _requests(call: Call) -> None:
    with requests.Session() as session:
        session.trust_env = False
        proxies = {"http": call.proxy, "https": call.proxy} if call.proxy else {}
        session.get(
            call.url, timeout=call.timeout, verify=call.ca_file or True, proxies=proxies
        ).raise_for_status()


def _urllib3(call: Call) -> None:
    settings: dict[str, Any] = {
        "retries": urllib3.Retry(0),
        "timeout": call.timeout,
        "ssl_context": call.trust(),
    }
    manager = urllib3.ProxyManager(call.proxy, **settings) if call.proxy else urllib3.PoolManager(**settings)
    with manager:
        manager.request("GET", call.url)


def _aiohttp(call: Call) -> None:
    async def get() -> None:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=call.timeout, sock_read=call.timeout)
        connector = aiohttp.TCPConnector(ssl=call.trust())
        async with (
            aiohttp.ClientSession(connector=connector, timeout=limits, raise_for_status=True) as session,
            session.get(call.url, proxy=call.proxy) as response,
        ):
            await response.read()

    asyncio.run(get())


CLIENTS: Final[dict[str, Callable[[Call], None]]] = {
    "httpx": _httpx_like(httpx),
    "httpx_async": _httpx_async(httpx),
    "httpx2": _httpx_like(httpx2),
    "httpx2_async": _httpx_async(httpx2),
    "requests": _requests,
    "urllib3": _urllib3,
    "aiohttp": _aiohttp,
}


def failure_of(get: Callable[[Call], None], call: Call) -> BaseException:
    """Return what the client raised."""
    try:
        get(call)
    except Exception as raised:
        return raised
    raise AssertionError("the client was content")
