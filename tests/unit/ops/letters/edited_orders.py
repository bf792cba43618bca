# SPDX-License-Identifier: Apache-2.0
"""The scene of edits: a shop of two stages, and the letter of an order that the second one could not pay."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from redrive import Pipeline, Redrive, RetryPolicy, stage
from redrive.ops.audit import Actor

ANN = Actor("ann", "a test")


@dataclass(frozen=True)
class Order:
    amount: int
    email: str = "ann@example.com"
    note: str = ""


@stage
def take(order: Order) -> Order:
    return order


@stage(retry=RetryPolicy(1))
def pay(order: Order) -> float:
    return 10 / order.amount


SHOP = Pipeline("shop", [take, pay])


@pytest.fixture
def letter(rd: Redrive) -> int:
    rd.submit(SHOP, Order(0))
    rd.work([SHOP], until_idle=True)
    return 1


def value(**changes: object) -> bytes:
    return json.dumps({"amount": 5, "email": "ann@example.com", "note": ""} | changes).encode()
