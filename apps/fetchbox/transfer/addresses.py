# SPDX-License-Identifier: Apache-2.0
"""Direct connections go to public addresses only: each name is resolved once, checked, and the checked address is the one used.

The check sits where connections are made, so it holds for the first request, after every redirect, and for names whose answer
changes between two questions. Connections through a proxy do not come here: there the proxy's own policy rules.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, Final

import httpcore

# Local translation, site-local, and two old ways to write an IPv4 address: the library takes them for public ones.
_SPECIAL: Final = tuple(
    map(ipaddress.IPv6Network, ("64:ff9b:1::/48", "fec0::/10", "::/96", "::ffff:0:0:0/96"))
)


class AddressRefusedError(Exception):
    """A host has a private, link-local or otherwise special address."""


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet; the addresses inside mapped and tunnelled ones count."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if any(found in network for network in _SPECIAL):
            return False
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is not None:
            return inner.is_global and not inner.is_multicast
        if found in ipaddress.ip_network("64:ff9b::/96"):
            return ipaddress.IPv4Address(int(found) & 0xFFFFFFFF).is_global
    return found.is_global and not found.is_multicast


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Makes connections to checked addresses."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's name.
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve a host, refuse it if any of its addresses is not public, and connect to one that was checked."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        if not self._allow_private and not all(map(is_public, addresses)):
            problem = "its host has a private or link-local address"
            raise AddressRefusedError(problem)
        return await self._inner.connect_tcp(addresses[0], port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        """Wait, as the pool asks."""
        await self._inner.sleep(seconds)
