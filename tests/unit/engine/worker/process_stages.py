# SPDX-License-Identifier: Apache-2.0
"""Stages that another process can find: names of an importable module, as `process=True` and suspects need them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from redrive import (
    Backoff,
    Batch,
    Cancel,
    Context,
    Fail,
    Finish,
    Pipeline,
    Retry,
    RetryPolicy,
    Skip,
    Snooze,
    stage,
)


class Api:
    """A resource."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_open = True


class Disk:
    """Another one."""


@asynccontextmanager
async def open_api() -> AsyncIterator[Api]:
    api = Api("apart")
    yield api
    api.is_open = False


@contextmanager
def open_disk() -> Iterator[Disk]:
    yield Disk()


@stage(process=True, retry=RetryPolicy(1))
def crunch(wish: str, ctx: Context) -> object:
    """Do as the input says."""
    ctx.note("wish", wish)
    ctx.note("process", os.getpid())
    ctx.submit(CHILDREN, wish)
    if wish == "log":
        logging.getLogger("apart").warning("wish %s", wish)
    if wish == "fail":
        raise PermissionError(13, "denied for a long wish of the customer")
    if wish == "cancel":
        return Cancel("enough")
    if wish == "give up":
        raise Fail("NOT_FOUND")
    if wish == "snooze" and not ctx.children[1:]:
        raise Snooze(5)
    if wish == "exit":
        sys.exit(3)
    if wish == "deadline":
        return None if ctx.deadline is None else ctx.deadline.isoformat()
    return os.getpid()


@stage
def keep(wish: str) -> str:
    return wish


@stage
def die(wish: str, ctx: Context) -> str:
    """End this very process, as a bug in a C library would."""
    if wish == "die":
        os._exit(7)
    return f"{wish} {ctx.attempt}"


@stage(process=True)
def die_shared(wish: str) -> str:
    if wish == "die":
        os._exit(7)
    return wish


@stage(timeout=0.01, retry=RetryPolicy(1))
async def wait_long(_wish: str) -> None:
    import asyncio

    await asyncio.Event().wait()


@stage
async def ask(wish: str, api: Api, disk: Disk) -> str:
    return f"{wish} {api.name} {api.is_open} {type(disk).__name__}"


@stage
async def ask_again(_wish: str) -> object:
    return Retry(1)


@stage(process=True, retry=RetryPolicy(2, Backoff.fixed(1)))
def name_file(wish: str, ctx: Context) -> str:
    """Tell of a file whose name is no Unicode."""
    if wish == "note":
        ctx.note("file \udce9", "na\udce9f.txt")
        return "noted"
    if wish == "reset":
        raise ConnectionResetError("gone: na\udce9f.txt")
    raise Fail("NOT_FOUND", "na\udce9f.txt")


@stage(process=True, retry=RetryPolicy(1))
def sift(wish: str, ctx: Context) -> object:
    """End the job early, in each way."""
    ctx.submit(CHILDREN, wish)
    if wish == "skip":
        raise Skip(f"nothing in {wish}")
    if wish == "return":
        return Finish("early")
    raise Finish("early" if wish == "raise" else [wish])


SIFTING = Pipeline("sifting", [sift, keep])
CRUNCHING = Pipeline("crunching", [crunch])
CHILDREN = Pipeline("children", [keep])
NAMING = Pipeline("naming", [name_file])
DEADLY = Pipeline("deadly", [die])
SHARED = Pipeline("shared", [die_shared])
ASKING = Pipeline("asking", [ask], resources=[open_api, open_disk])


@stage(batch=Batch(size=8), retry=RetryPolicy(1))
async def embed(wishes: list[str], contexts: list[Context]) -> list[int | Exception]:
    """Do as each input says, many at once."""
    for wish, ctx in zip(wishes, contexts, strict=True):
        ctx.note("wish", f"{wish} of {len(wishes)} in {os.getpid()}")
        if wish == "die":
            os._exit(9)
    return [EMBEDDED.get(wish, len(wish)) for wish in wishes]


EMBEDDED: dict[str, int | Exception] = {"fail": ValueError("bad wish"), "finish": Finish(5)}
EMBEDDING = Pipeline("embedding", [embed])
