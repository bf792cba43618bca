# SPDX-License-Identifier: Apache-2.0
"""The hint of an application's own code reaches whoever looks at a letter, its group or its job, without the code at hand."""

from __future__ import annotations

from redrive import CodeSet, Event, OwnCode, Pipeline, Redrive, stage
from redrive.ops.jobs.explain import explain
from redrive.store.protocol import Store
from redrive.testing import run_inline
from tests.unit.build import work

OWN = CodeSet("shop", [OwnCode("BROKE", ["BUG_CODE"], hint="Ask the kitchen.")], otherwise=OwnCode("REST"))


@stage
def call(number: int) -> float:
    return 1 / number


def test_the_hint_of_an_own_code_is_shown(store: Store, rd: Redrive) -> None:
    pipeline = Pipeline("shop", [call], codes=OWN)
    job = rd.submit(pipeline, 0)
    work(store, pipeline)

    assert rd.letters.show(1).hint == "Ask the kitchen."
    assert [group.hint for group in rd.letters.groups()] == ["Ask the kitchen."]
    assert explain(store, job.id).next_steps[0] == "Ask the kitchen."


def test_a_pipeline_run_inline_tells_its_hooks_as_much_as_a_worker() -> None:
    heard: list[Event] = []
    run_inline(Pipeline("shop", [call], on_dead=heard.append), 0)

    (event,) = heard
    assert (event.category, event.exception) == ("bug", "ZeroDivisionError")
    assert "in call" in event.stack
