# SPDX-License-Identifier: Apache-2.0
"""Transactional stages that another process can find, and that die there at the moment which their input names."""

from __future__ import annotations

import os
import signal
from typing import Any

from msgspec import Struct

from redrive import Context, Pipeline, stage
from redrive.store.postgres import stage_transactions


class Order(Struct):
    """What to write where, and what happens then."""

    table: str
    number: int
    moment: str = ""


@stage
def count(number: int) -> int:
    return number


@stage(transactional=True, retry=1)
def charge(order: Order, ctx: Context) -> int:
    ctx.connection.execute(*_write(order))
    ctx.submit(COUNTS, order.number)
    _die(order.moment)
    return os.getpid()


@stage(transactional=True, retry=1)
async def charge_async(order: Order, ctx: Context) -> int:
    await ctx.connection.execute(*_write(order))
    ctx.submit(COUNTS, order.number)
    _die(order.moment)
    return os.getpid()


COUNTS = Pipeline("counts", [count])
CHARGES = Pipeline("charges", [charge])
CHARGES_ASYNC = Pipeline("charges_async", [charge_async])


def _write(order: Order) -> tuple[str, tuple[int, ...]]:
    # The same value a second time fails at the commit.
    later = 1 if order.moment == "constraint" else order.number
    numbers = (order.number, later, order.number + 1_000, later + (order.moment != "constraint") * 1_000)
    return f"INSERT INTO {order.table} VALUES (%s, %s), (%s, %s)", numbers


def _die(moment: str) -> None:
    """Die, at once or at a later moment; this process is one of its own."""
    patched: Any = stage_transactions
    settle, commit = patched.settle_at_once, patched.ServerStageTransaction._settle

    def settled(*args: object) -> None:
        settle(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    def committed(*args: object) -> None:
        commit(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "effect":
        os.kill(os.getpid(), signal.SIGKILL)
    if moment == "settled":
        patched.settle_at_once = settled
    if moment == "committed":
        patched.ServerStageTransaction._settle = committed
    if moment == "raise":
        raise ValueError(moment)
