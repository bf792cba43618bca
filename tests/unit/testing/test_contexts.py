# SPDX-License-Identifier: Apache-2.0
"""A context for a stage that is called as the function it is."""

from __future__ import annotations

import hashlib

import pytest

from redrive import Cancel, Context, stage
from redrive.testing import context


@stage
def review(diff: str, ctx: Context) -> str:
    ctx.note("size", len(diff))
    ctx.heartbeat()
    return f"{ctx.key} of {ctx.owner} in run {ctx.run_id}, {ctx.stage} {ctx.attempt}"


def test_a_stage_gets_what_the_test_says() -> None:
    ctx = context(key="a", owner="ann", run_id=3, stage="review", attempt=2, payload={"id": 1})

    assert review("diff", ctx) == "a of ann in run 3, review 2"
    assert ctx.notes == {"size": "4"}
    assert ctx.payload_hash == hashlib.sha256(b'{"id":1}').hexdigest()


def test_a_plain_context_has_nothing_special_and_a_cancelled_one_stops_the_stage() -> None:
    plain = context()
    assert (plain.key, plain.owner, plain.run_id, plain.idempotency_key) == (
        None,
        None,
        None,
        "test:none-1:stage",
    )

    with pytest.raises(Cancel):
        review("diff", context(is_cancelled=True))
