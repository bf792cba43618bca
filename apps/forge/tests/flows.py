# SPDX-License-Identifier: Apache-2.0
"""Specs for the tests: what their stages do is set in STATE."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import httpx
import msgspec

from apps.forge.artifacts import Artifacts
from apps.forge.example import flow as example
from apps.forge.measurements import Measured, measurement
from apps.forge.policy import policy, stage
from apps.forge.spec import Forge
from redrive import Context, Fail, FailureBudget, RetryPolicy
from redrive.core.budget import RunThresholds


class Number(msgspec.Struct, frozen=True):
    """A sample."""

    n: int


@dataclass
class State:
    """What stages do, and what they did."""

    broken: frozenset[int] = frozenset()
    """The samples that fail for good in `square`."""
    statuses: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """The answers that samples get in `call`, one after the other; 200 without any."""
    calls: Counter[tuple[str, int]] = field(default_factory=Counter)
    measured: Counter[str] = field(default_factory=Counter)
    each: Callable[[int], None] = lambda _: None
    """Called with every sample in `call`."""


STATE = State()


def answer(status: int) -> None:
    """Raise what a client raises for a status."""
    httpx.Response(status, request=httpx.Request("POST", "https://model.example/v1")).raise_for_status()


@stage(retry=policy(1))
def square(sample: Number) -> Number:
    STATE.calls["square", sample.n] += 1
    if sample.n in STATE.broken:
        raise Fail(code="SAMPLE_BROKEN", message=f"sample {sample.n} cannot be squared")
    return Number(sample.n**2)


async def call(sample: Number) -> Number:
    STATE.each(sample.n)
    STATE.calls["call", sample.n] += 1
    answers = STATE.statuses.get(sample.n, (200,))
    answer(answers[min(STATE.calls["call", sample.n], len(answers)) - 1])
    return sample


def flip(sample: Number, ctx: Context) -> Number:
    """Fail half of the time; every hundred samples have a seed of their own."""
    if random.Random(f"{sample.n // 100} {sample.n} {ctx.attempt}").random() < 0.5:
        answer(429)
    return sample


@measurement()
def size(samples: Sequence[Measured], _: Artifacts) -> list[int]:
    STATE.measured["size"] += len(samples)
    return [each.output.n for each in samples]


@measurement(after=["size"])
def twice(samples: Sequence[Measured], _: Artifacts) -> list[float]:
    STATE.measured["twice"] += len(samples)
    return [2.0 * float(each.values["size"] or 0) for each in samples]


def made(name: str, retry: RetryPolicy, **options: object) -> Forge:
    """Return a spec with one stage, which calls."""
    return Forge(name=name, stages=[stage(retry=retry, name="call")(call)], **options)  # type: ignore[arg-type]


def numbers() -> Iterator[dict[str, int]]:
    return ({"n": number} for number in range(5))


plain = Forge(
    name="plain",
    stages=[square, stage(name="call")(call)],
    source=numbers,
    measurements=[twice, size],
    failure_budget=FailureBudget(max_rate=1.0),
    settings=lambda: {"model": "small", "api_key": "sk-not-for-the-manifest"},
    secrets=["MODEL_KEY"],
)
lax = FailureBudget(max_rate=1.0)
strict = made(
    "strict", policy(1), failure_budget=lax, thresholds=RunThresholds(completed=1.0, partial_success=0.9)
)
lenient = made("lenient", policy(1), failure_budget=lax)
fixed = made("fixed", policy(3, backoff="fixed", base_delay=2), failure_budget=lax)
linear = made("linear", policy(3, backoff="linear", base_delay=2, max_delay=3), failure_budget=lax)
default = made("default", policy(), failure_budget=lax)
nothing = made("nothing", policy(retriable_errors="none"), failure_budget=lax)
statuses = made("statuses", policy(retriable_errors=[429, 404]), failure_budget=lax)
classes = made("classes", policy(retriable_errors=[httpx.HTTPStatusError]), failure_budget=lax)
codes = made("codes", policy(retriable_errors=["UPSTREAM_ERROR"]), failure_budget=lax)
impatient = replace(example.spec, failure_budget=FailureBudget(check_every=100))
flipping = Forge(name="flipping", stages=[stage(name="flip")(flip)], failure_budget=lax)
