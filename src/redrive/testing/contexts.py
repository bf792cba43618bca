# SPDX-License-Identifier: Apache-2.0
"""A context for a stage that a test calls as the function it is."""

from __future__ import annotations

import msgspec

from redrive.engine.pipeline.context import Context


def context(
    *,
    job_id: int = 1,
    pipeline: str = "test",
    stage: str = "stage",
    attempt: int = 1,
    key: str | None = None,
    owner: str | None = None,
    run_id: int | None = None,
    payload: object = None,
    is_cancelled: bool = False,
    connection: object = None,
) -> Context:
    """Return a context as a worker would give it to a stage.

    `review(diff, context(key="change-42"))` calls the stage `review` as the function it is. What the stage reports is in its
    `notes`, `children` and `progress_text` afterwards. A transactional stage writes to the `connection` that the test gives it.
    """
    has_about = any(each is not None for each in (key, owner, run_id))
    return Context(
        job_id=job_id,
        pipeline=pipeline,
        stage=stage,
        attempt=attempt,
        is_cancelled=is_cancelled,
        transaction=connection,
        about=msgspec.json.encode((key, owner, run_id)) if has_about else None,
        payload=msgspec.json.encode(payload),
    )
