# SPDX-License-Identifier: Apache-2.0
"""The pipelines of the fault tests: every stage leaves its effect in a ledger outside the store.

The ledger is the file that FAULTS_LEDGER names; an effect is one line, written by one write to a file opened for appending, so
that lines of many processes never mix. An effect is the last thing a stage does before it returns, unless its order says otherwise.
"""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

from msgspec import Struct

from redrive import Backoff, Cancel, Context, Jitter, Pipeline, RetryPolicy, stage

PROMPT = RetryPolicy(3, Backoff.fixed(0.01, jitter=Jitter.none()))
GATE_SECONDS = 60.0


class Order(Struct, frozen=True):
    """What one job is to do."""

    number: int
    act: str = ""
    seconds: float = 0.0


def effect(ctx: Context) -> None:
    """Leave one line in the ledger."""
    line = f"{ctx.job_id} {ctx.stage} {os.getpid()}\n".encode()
    ledger = os.open(os.environ["FAULTS_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        assert os.write(ledger, line) == len(line)
    finally:
        os.close(ledger)


def pause(seconds: float) -> None:
    """Block this thread, for a stage that takes its time."""
    threading.Event().wait(seconds)


def stand_at_gate(number: int) -> None:
    """Say that this stage is there, and wait until the gate is opened."""
    here = Path(os.environ["FAULTS_LEDGER"]).parent
    (here / f"ready-{number}").touch()
    tries = 0
    while not (here / "gate").exists() and tries < 100 * GATE_SECONDS:
        pause(0.01)
        tries += 1


@stage(retry=PROMPT)
def first(order: Order, ctx: Context) -> Order:
    pause(order.seconds)
    if order.act == "flaky" and ctx.attempt == 1:
        raise ConnectionResetError(104, "reset")
    effect(ctx)
    if order.act == "gate":
        stand_at_gate(order.number)
    return order


@stage(retry=PROMPT)
async def second(order: Order, ctx: Context) -> Order:
    await asyncio.sleep(0)
    if order.act == "exit":
        os._exit(7)
    if order.act == "block":
        pause(order.seconds)
    if order.act == "bug":
        raise KeyError(order.number)
    if order.act == "cancel":
        raise Cancel(reason="it is not wanted")
    effect(ctx)
    return order


@stage(retry=PROMPT)
def third(order: Order, ctx: Context) -> int:
    effect(ctx)
    return order.number


steps = Pipeline("steps", [first, second, third])


@stage(retry=PROMPT)
def only(order: Order, ctx: Context) -> int:
    if order.act == "exit":
        os._exit(7)
    effect(ctx)
    return order.number


single = Pipeline("single", [only])


@stage(retry=PROMPT)
async def blocking(order: Order, ctx: Context) -> int:
    """Block the event loop itself, which a stage should never do."""
    await asyncio.sleep(0)
    if order.act == "block":
        stand_at_gate(order.number)
    effect(ctx)
    return order.number


blocked = Pipeline("blocked", [blocking])


@stage(retry=PROMPT, process=True)
def far(order: Order, ctx: Context) -> int:
    effect(ctx)
    if order.act == "gate":
        stand_at_gate(order.number)
    return order.number


apart = Pipeline("apart", [far])
