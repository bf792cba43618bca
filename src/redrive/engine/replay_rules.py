# SPDX-License-Identifier: Apache-2.0
"""What a pipeline's code says about replays, kept in the store for whoever acts without the code at hand.

A pipeline nobody has said anything about is under the strictest rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import cast

import msgspec

from redrive.core.replay import ReplayRules
from redrive.engine.pipeline import Pipeline
from redrive.store.protocol import Step, Store


def record_rules(store: Store, pipelines: Iterable[Pipeline]) -> None:
    """Write down the rules of pipelines, where they are not what is written already."""
    steps = [
        Step("put_rules", (pipeline.name, msgspec.json.encode(asdict(pipeline.replay))))
        for pipeline in pipelines
        if rules_of(store, pipeline.name) != pipeline.replay
    ]
    if steps:
        store.apply(*steps)


def rules_of(store: Store, pipeline: str) -> ReplayRules:
    """Return the rules of a pipeline, as its code said when it was last used."""
    rows = store.query("rules", pipeline)
    return msgspec.json.decode(cast("bytes", rows[0][0]), type=ReplayRules) if rows else ReplayRules()
