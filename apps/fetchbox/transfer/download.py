# SPDX-License-Identifier: Apache-2.0
"""Download a resource into a file of the spool, as it arrives: its size limited, its SHA-256 computed, resumed where it broke off.

One call is one request per redirect; nothing is retried here. A part that is left by an earlier attempt is continued with Range if
the server gave a validator for it (ETag or Last-Modified) and still has the same content. Only one attempt at a time holds a part.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import itertools
import os
import re
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import httpcore
import httpx
import msgspec

from apps.fetchbox.transfer.addresses import AddressRefusedError, CheckedBackend
from redrive import Fail, Retry, Snooze

if TYPE_CHECKING:
    from types import TracebackType

    from apps.fetchbox.settings import Settings
    from apps.fetchbox.transfer.proxies import Proxy

REDIRECTS_MAX: Final = 5
POOLS: Final = 8
"""Connection pools for direct connections, and for each proxy."""
BLOCK: Final = 1 << 18
"""Bytes from which writing is worth the way to a thread."""
_REST: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
OCTETS: Final = "application/octet-stream"
_TYPE: Final = re.compile(r"[\x20-\x7e]{1,255}")
_PLAIN: Final = {"accept-encoding": "identity", "user-agent": "fetchbox"}


class Body(msgspec.Struct, frozen=True):
    """What was downloaded: a file of the spool."""

    size: int
    sha256: str
    content_type: str = OCTETS
    status: int = 200


class Part:
    """The file of one task in the spool, and the validator of what is in it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self._about = folder / f"{name}.etag"

    @contextmanager
    def held(self) -> Generator[FileIO]:
        """Hold the part: no other attempt reads or writes it meanwhile, in this process or another. An empty one is not left.

        Raises:
            Snooze: another attempt holds it, such as one that lost its lease and does not know yet.
        """
        with self.path.open("ab", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_there = os.path.samestat(os.fstat(file.fileno()), self.path.stat())
            except (BlockingIOError, FileNotFoundError):
                is_there = False
            if not is_there:
                raise Snooze(1, message="another attempt holds the file in the spool")
            try:
                yield file
            finally:
                if not os.fstat(file.fileno()).st_size:
                    self.remove()

    def resumable(self) -> tuple[int, str]:
        """Return how many bytes are there, and their validator; 0 if they cannot be continued."""
        try:
            return self.path.stat().st_size, self._about.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return 0, ""

    def begin(self, file: FileIO, validator: str) -> None:
        """Start the file anew, with the validator of the response."""
        if os.fstat(file.fileno()).st_size:
            file.truncate(0)
        if validator:
            self._about.write_text(validator, encoding="utf-8")
        elif self._about.exists():
            self._about.unlink()

    def remove(self) -> None:
        """Delete the file and its validator."""
        for each in (self.path, self._about):
            with suppress(OSError):
                each.unlink(missing_ok=True)


def sweep(folder: Path, before: float) -> None:
    """Delete the files of the spool that were last written before this time: their tasks have ended, or begin anew."""
    for each in folder.iterdir():
        with suppress(OSError):
            if each.stat().st_mtime < before:
                each.unlink()


class Downloader:
    """Clients for direct connections, and for each proxy, opened when first used."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._stack = AsyncExitStack()
        self._turns = itertools.count()

    async def __aenter__(self) -> Self:
        """Return it."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the clients."""
        await self._stack.aclose()

    async def fetch(
        self, url: str, headers: Mapping[str, str], part: Part, file: FileIO, proxy: Proxy | None
    ) -> Body:
        """Download a URL into the part, whose file is held, in one attempt.

        Raises:
            httpx.HTTPError: it failed; the part keeps what arrived, if it can be continued.
            Fail: it is refused: the address, a redirect, its size.
        """
        client = await self._client(proxy)
        there, validator = part.resumable()
        asked = {**_PLAIN, **headers}
        if there and validator:
            asked |= {"range": f"bytes={there}-", "if-range": validator}
        try:
            async with AsyncExitStack() as stack:
                response = await _opened(stack, client, url, asked)
                return await self._read(response, part, file, there)
        except AddressRefusedError as error:
            raise Fail(code="DOWNLOAD_ADDRESS_REFUSED", message=str(error)) from None

    async def _read(self, response: httpx.Response, part: Part, file: FileIO, there: int) -> Body:
        if (
            response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE
            and "range" in response.request.headers
        ):
            part.remove()
            raise Retry(0)
        total = _total(response, there)
        digest = hashlib.sha256()
        size = 0
        if response.status_code == httpx.codes.OK:
            part.begin(file, _validator(response))
        elif total is not None:
            size = await asyncio.to_thread(_digest_file, part.path, digest)
        else:
            part.remove()
            raise _wrong_part(response)
        most = self._settings.object_max
        if size + int(response.headers.get("content-length") or 0) > most:
            part.remove()
            raise _too_large(most)
        async for block in _blocks(response.aiter_raw()):
            size += len(block)
            if size > most:
                part.remove()
                raise _too_large(most)
            if len(block) < BLOCK:
                _append(file, digest, block)
            else:
                await asyncio.to_thread(_append, file, digest, block)
        if total not in {None, size}:
            part.remove()
            raise _wrong_part(response)
        return Body(size, digest.hexdigest(), _type_of(response), response.status_code)

    async def _client(self, proxy: Proxy | None) -> httpx.AsyncClient:
        # The cost of a connection pool grows with the square of its connections, so that several are faster than one.
        place = next(self._turns) % POOLS
        name = f"{'' if proxy is None else proxy.name}/{place}"
        if name not in self._clients:
            settings = self._settings
            limits = httpx.Limits(
                max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency
            )
            transport = (
                _checked_transport(settings, limits)
                if proxy is None
                else httpx.AsyncHTTPTransport(proxy=proxy.url, limits=limits, retries=0, trust_env=False)
            )
            client = httpx.AsyncClient(
                transport=transport,
                timeout=settings.timeout_seconds,
                follow_redirects=False,
                trust_env=False,
                # A client is shared by all tenants: the cookies that one of them is given are not for the others.
                cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            )
            self._clients[name] = await self._stack.enter_async_context(client)
        return self._clients[name]


def _checked_transport(settings: Settings, limits: httpx.Limits) -> httpx.AsyncHTTPTransport:
    transport = httpx.AsyncHTTPTransport(limits=limits, retries=0, trust_env=False)
    # httpx has no argument for it: its pool is replaced by one that checks addresses.
    transport._pool = httpcore.AsyncConnectionPool(  # noqa: SLF001
        ssl_context=httpx.create_ssl_context(trust_env=False),
        max_connections=limits.max_connections,
        max_keepalive_connections=limits.max_keepalive_connections,
        retries=0,
        network_backend=CheckedBackend(allow_private=settings.allow_private),
    )
    return transport


async def _opened(
    stack: AsyncExitStack, client: httpx.AsyncClient, url: str, headers: Mapping[str, str]
) -> httpx.Response:
    """Send the request, and follow redirects; another origin does not get the headers of the task."""
    address = httpx.URL(url)
    for _ in range(REDIRECTS_MAX + 1):
        # The library encodes texts as ASCII alone.
        sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        request = client.build_request("GET", address, headers=sent)
        response = await client.send(request, stream=True)
        stack.push_async_callback(response.aclose)
        if not response.has_redirect_location:
            return response
        after = address.join(response.headers["location"])
        if after.scheme not in {"http", "https"}:
            raise Fail(code="DOWNLOAD_INVALID_URL", message="a redirect leads to no http or https URL")
        if _origin(after) != _origin(address):
            headers = {
                name: value for name, value in headers.items() if name in {*_PLAIN, "range", "if-range"}
            }
        address = after
        await response.aclose()
    raise Fail(code="DOWNLOAD_INVALID_URL", message=f"more than {REDIRECTS_MAX} redirects")


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}[url.scheme]


def _total(response: httpx.Response, there: int) -> int | None:
    """Return the size of the resource if this is exactly the rest of it, else None; raises if it is neither 200 nor 206."""
    if response.status_code not in {httpx.codes.OK, httpx.codes.PARTIAL_CONTENT}:
        problem = f"the origin answered {response.status_code} {response.reason_phrase}"
        raise httpx.HTTPStatusError(problem, request=response.request, response=response)
    found = _REST.fullmatch(response.headers.get("content-range", ""))
    if found is None or response.status_code == httpx.codes.OK or "range" not in response.request.headers:
        return None
    begin, end, total = map(int, found.groups())
    return total if (begin, end) == (there, total - 1) else None


def _wrong_part(response: httpx.Response) -> httpx.RemoteProtocolError:
    """Return the failure of an answer with a part that was not asked for; the next attempt starts anew."""
    problem = "the origin answered with another part of the resource than the rest of it"
    return httpx.RemoteProtocolError(problem, request=response.request)


def _type_of(response: httpx.Response) -> str:
    """Return the content type to store: an odd one makes a store refuse the object, or its library panic."""
    found = response.headers.get("content-type", "")
    return found if _TYPE.fullmatch(found) else OCTETS


def _validator(response: httpx.Response) -> str:
    """Return what a later request can continue with: a strong ETag, or the date of the last change."""
    if response.headers.get("accept-ranges", "").lower() != "bytes":
        return ""
    tag = str(response.headers.get("etag", ""))
    found = tag if tag and not tag.startswith("W/") else str(response.headers.get("last-modified", ""))
    # Another one could not be sent back.
    return found if found.isascii() and found.isprintable() else ""


async def _blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    block = bytearray()
    try:
        async for chunk in chunks:
            block += chunk
            if len(block) >= BLOCK:
                yield bytes(block)
                block.clear()
    except httpx.HTTPError:
        # What arrived before the connection broke is kept, so that the next attempt can continue after it.
        if block:
            yield bytes(block)
        raise
    if block:
        yield bytes(block)


def _digest_file(path: Path, digest: hashlib._Hash) -> int:
    size = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
    return size


def _append(file: FileIO, digest: hashlib._Hash, block: bytes) -> None:
    digest.update(block)
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


def _too_large(most: int) -> Fail:
    return Fail(code="DOWNLOAD_TOO_LARGE", message=f"the resource is larger than {most:,} bytes")
