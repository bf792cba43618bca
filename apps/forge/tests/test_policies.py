# SPDX-License-Identifier: Apache-2.0
"""Policies in Forge's words, as a run applies them: what is retried, how often, and how long it waits."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from apps.forge.folder import RunFolder
from apps.forge.policy import policy
from apps.forge.tests import flows
from apps.forge.tests.conftest import Forge, numbered, telemetry_of
from redrive import Backoff, ConfigurationError, Jitter, RetryPolicy, connect
from redrive.testing import VirtualClock

SPEC = "apps.forge.tests.flows"


@pytest.mark.req("FG-2.1")
def test_the_default_policy_is_forges() -> None:
    jittered = Backoff.exponential(1, factor=2, cap=60, jitter=Jitter.ratio(0.25))

    assert policy() == RetryPolicy(3, jittered, retry_on="all")
    assert flows.plain.stages[1].retry == policy()
    assert policy(5, base_delay=1, max_delay=30, retriable_errors=[429, 503]).retry_on == (429, 503)


@pytest.mark.req("FG-2.1")
def test_each_stage_keeps_to_its_own_policy(
    forge: Forge, samples: Callable[..., Path], clock: VirtualClock
) -> None:
    flows.STATE.broken = frozenset({1})
    flows.STATE.statuses = {0: (500,), 4: (503, 200)}

    forge("run", f"{SPEC}:plain", "--input", samples(numbered(3)), "--out", "out")

    assert flows.STATE.calls["square", 1] == 1
    assert flows.STATE.calls["call", 0] == 3
    assert flows.STATE.calls["call", 4] == 2


@pytest.mark.req("FG-2.2")
@pytest.mark.parametrize(
    ("spec", "nominal", "spread"),
    [("default", (1, 2), 0.25), ("fixed", (2, 2), 0.0), ("linear", (2, 3), 0.0)],
)
def test_the_delays_are_those_of_the_formula(
    spec: str,
    nominal: tuple[float, float],
    spread: float,
    forge: Forge,
    samples: Callable[..., Path],
    clock: VirtualClock,
) -> None:
    """The delays that were reported are those that the samples waited."""
    flows.STATE.statuses = dict.fromkeys(range(200), (503,))

    forge("run", f"{SPEC}:{spec}", "--input", samples(numbered(200)), "--out", "out")

    retries = [each for each in telemetry_of(getattr(flows, spec), clock) if each["kind"] == "retry"]
    for attempt, expected in enumerate(nominal, 1):
        delays = [each["next_delay"] for each in retries if each["attempt"] == attempt]
        assert len(delays) == 200
        assert all(
            expected * (1 - spread) <= each + 1e-5 <= expected * (1 + spread) + 2e-5 for each in delays
        )
        assert statistics.mean(delays) == pytest.approx(expected, rel=0.1 if spread else 1e-4)
        assert (len({round(each, 4) for each in delays}) > 100) == bool(spread)


@pytest.mark.req("FG-3.1")
@pytest.mark.parametrize(
    ("spec", "status", "calls"),
    [
        ("default", 404, 3),
        ("nothing", 503, 1),
        ("statuses", 404, 3),
        ("statuses", 503, 1),
        ("classes", 503, 3),
        ("classes", 404, 1),
        ("codes", 500, 3),
        ("codes", 429, 1),
    ],
)
def test_what_is_retried_is_all_none_or_a_list(
    spec: str, status: int, calls: int, forge: Forge, samples: Callable[..., Path], clock: VirtualClock
) -> None:
    flows.STATE.statuses = {0: (status,)}

    forge("run", f"{SPEC}:{spec}", "--input", samples(numbered(1)), "--out", "out")

    assert flows.STATE.calls["call", 0] == calls


@pytest.mark.req("FG-4.1")
def test_every_attempt_is_a_row_with_the_config_that_the_manifest_has(
    forge: Forge, samples: Callable[..., Path], clock: VirtualClock
) -> None:
    flows.STATE.statuses = {1: (503, 429, 200)}

    forge("run", f"{SPEC}:plain", "--input", samples(numbered(2)), "--out", "out")

    manifest = msgspec.json.decode(Path("out/manifest.json").read_bytes())
    with connect(RunFolder(Path("out")).database) as rd:
        rows = rd.job(2).attempts()
    assert [(each.stage, each.attempt, each.outcome, each.code) for each in rows] == [
        ("square", 1, "ok", None),
        ("call", 1, "retry", "NETWORK_UNAVAILABLE"),
        ("call", 2, "retry", "RATE_LIMITED"),
        ("call", 3, "ok", None),
    ]
    assert [each.config for each in rows] == [
        manifest["stages"][name]["config"] for name in ("square", "call", "call", "call")
    ]
    assert rows[1].message


def test_an_unknown_backoff_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"must be jittered_exponential, fixed or linear"):
        policy(backoff="random")  # type: ignore[arg-type]
