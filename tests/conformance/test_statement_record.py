# SPDX-License-Identifier: Apache-2.0
"""The record of which statements the suite runs: what no test runs on a store fails the run, if the whole suite was run there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.statement_record import PROPERTY, StatementRecord, declared, suite


def noted(record: StatementRecord, test: str, *ran: str, store: str = "sqlite file") -> None:
    """Report that a test has run statements on a store."""
    record.pytest_runtest_logreport(
        pytest.TestReport(
            nodeid=f"test_store.py::TestStore::{test}[{store}]",
            location=("test_store.py", 1, f"TestStore.{test}[{store}]"),
            keywords={},
            outcome="passed",
            longrepr=None,
            when="teardown",
            user_properties=[(PROPERTY, [store, *ran])],
        )
    )


@pytest.mark.parametrize(("left_out", "status"), [((), 0), (("counts", "replay"), 1)])
def test_a_run_that_leaves_out_a_statement_fails(left_out: tuple[str, ...], status: int) -> None:
    record, session = StatementRecord(), SimpleNamespace(exitstatus=0)
    for test in suite():
        noted(record, test, *(declared().keys() - set(left_out)))
        noted(record, test, *declared(), store="postgres")

    record.pytest_sessionfinish(cast("pytest.Session", session))

    assert int(session.exitstatus) == status
    assert record.left_out(suite(), declared().keys()) == (
        {"sqlite file": list(left_out)} if left_out else {}
    )


def test_a_part_of_the_suite_is_not_judged() -> None:
    record, session = StatementRecord(), SimpleNamespace(exitstatus=0)
    for test in sorted(suite())[1:]:
        noted(record, test, "counts")

    record.pytest_sessionfinish(cast("pytest.Session", session))

    assert session.exitstatus == 0
