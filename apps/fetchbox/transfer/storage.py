# SPDX-License-Identifier: Apache-2.0
"""Object stores by URL: s3://, gs://, az:// and file://. An object is visible once it is complete, in every one of them.

The library's own retries are off. The SHA-256 of an object is its metadata `sha256`; a local folder has no metadata, so there the
file is read.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import obstore
from obstore.store import LocalStore, ObjectStore, from_url

from apps.fetchbox.settings import Settings

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_ONCE: Final[RetryConfig] = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}


class Bucket:
    """One object store."""

    def __init__(self, url: str, *, timeout: float, allow_http: bool = False) -> None:
        parts = urlsplit(url)
        self._folder: Path | None = None
        self._store: ObjectStore
        if parts.scheme == "file":
            self._folder = Path(unquote(parts.path))
            self._store = LocalStore(self._folder, mkdir=True)
        else:
            limit = timedelta(seconds=timeout)
            client: ClientConfig = {"timeout": limit, "connect_timeout": limit, "allow_http": allow_http}
            self._store = from_url(url, retry_config=_ONCE, client_options=client)

    async def has(self, key: str, sha256: str) -> bool:
        """Return whether there is an object with this key and this content."""
        if self._folder is not None:
            path = self._folder / key
            # Looking is faster than handing it to a thread; reading is not.
            return path.is_file() and await asyncio.to_thread(_is_durable, self._folder, key, sha256)
        try:
            found = await obstore.get_async(self._store, key, options={"head": True})
        except FileNotFoundError:
            return False
        return found.attributes.get("sha256") == sha256

    async def put_file(self, key: str, file: Path, *, sha256: str, content_type: str) -> None:
        """Store a file as an object, in parts if it is large; atomic, and durable when this returns.

        A folder takes the file itself, if both are on one file system.
        """
        if self._folder is not None and await asyncio.to_thread(_moved, file, self._folder, key):
            return
        attributes = None if self._folder is not None else {"Content-Type": content_type, "sha256": sha256}
        await obstore.put_async(self._store, key, file, attributes=attributes)
        await self._keep(key)

    async def put(self, key: str, content: bytes) -> None:
        """Store a small object; atomic, and durable when this returns."""
        attributes = None if self._folder is not None else {"Content-Type": "application/json"}
        await obstore.put_async(self._store, key, content, attributes=attributes)
        await self._keep(key)

    async def _keep(self, key: str) -> None:
        """Make an object in a folder durable; the library leaves that to the system, which may lose it with the power."""
        if self._folder is not None:
            await asyncio.to_thread(_sync, self._folder, key)

    async def ping(self) -> None:
        """Ask for an object that is not there; raises what the store raises if it does not answer."""
        try:
            await obstore.head_async(self._store, "fetchbox-ping")
        except FileNotFoundError:
            return


class Buckets:
    """The object stores of the job types, opened once each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: dict[str, Bucket] = {}

    def of(self, url: str = "") -> Bucket:
        """Return the store of this URL; of the settings if it is empty."""
        wanted = url or self._settings.storage
        if wanted not in self._open:
            self._open[wanted] = Bucket(
                wanted, timeout=self._settings.timeout_seconds, allow_http=self._settings.storage_http
            )
        return self._open[wanted]


def _is_durable(folder: Path, key: str, sha256: str) -> bool:
    """Return whether a file has this content; then it is durable, also if the process that wrote it had no time for that."""
    try:
        with (folder / key).open("rb") as file:
            is_same = hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False
    if is_same:
        _sync(folder, key)
    return is_same


def _moved(file: Path, folder: Path, key: str) -> bool:
    """Make a file an object of a folder, durably; return False if it has to be copied."""
    path = folder / key
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file.replace(path)
    except OSError:
        # Another file system, or a key that is no name of a file: the library copies it, or says what is wrong with it.
        return False
    _sync(folder, key)
    return True


def _sync(folder: Path, key: str) -> None:
    """Wait until a file, and the folders that lead to it, are on the disk."""
    path = folder / key
    for each in (path, *path.parents):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if each == folder:
            return
