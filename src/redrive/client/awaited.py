# SPDX-License-Identifier: Apache-2.0
"""Faces of the nouns of a connection; the async ones are made from the sync ones: nothing is written twice.

`awaited` takes a method of a sync face, with its signature and docstring, and calls it on a thread, so that the loop never waits
for a disk. Only methods that return something else in async code are written out.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Concatenate, Final, Generic, ParamSpec, TypeVar

from redrive.store.protocol import Store

F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class Face:
    """The use cases of a noun, on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store


class AsyncFace(Generic[F_co]):
    """The async face of a noun."""

    def __init__(self, face: F_co) -> None:
        self.face: Final = face
        """The sync one."""


def awaited(
    method: Callable[Concatenate[F, P], T],
) -> Callable[Concatenate[AsyncFace[F], P], Coroutine[None, None, T]]:
    """Return a method of a sync face as one to await, with the same signature and docstring."""

    @functools.wraps(method)
    async def call(on: AsyncFace[F], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, on.face, *args, **kwargs)

    return call
