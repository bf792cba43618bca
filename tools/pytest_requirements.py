# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in: checks the `req` marks as tests are collected, and writes down which marked test passed.

The checks stop a run at once when a mark names an unknown requirement. The results go to the file named by
REDRIVE_REQUIREMENT_RESULTS, if that is set; `tools.requirements` makes the table from them. With several test processes the
marks travel inside the test reports, so only the process that collects the reports writes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tools.requirements import MARKS_MAX, Page, read_page

RESULTS_VARIABLE = "REDRIVE_REQUIREMENT_RESULTS"
_PROPERTY = "redrive-req"
_NAME = "redrive-requirements"


def register(config: pytest.Config) -> None:
    """Add the plug-in to this run, once, however many conftest files ask for it."""
    if not config.pluginmanager.has_plugin(_NAME):
        config.pluginmanager.register(RequirementMarks(config), _NAME)


def mistakes_in(mark: pytest.Mark, page: Page) -> list[str]:
    """Return what is wrong with one `req` mark."""
    wrong: list[str] = []
    decision = mark.kwargs.get("decision")
    if not mark.args and decision is None:
        wrong.append("names no requirement")
    if len(mark.args) > MARKS_MAX:
        wrong.append(f"names {len(mark.args)} requirements; {MARKS_MAX} is the most")
    wrong.extend(
        f"names the unknown requirement {name!r}" for name in mark.args if name not in page.requirements
    )
    if decision is not None and decision not in page.decisions:
        wrong.append(f"names the unknown decision {decision!r}; known: {', '.join(page.decisions)}")
    wrong.extend(f"has the unknown argument {name!r}" for name in mark.kwargs if name != "decision")
    return wrong


class RequirementMarks:
    """The hooks, with what was seen so far: node id -> ids and outcome."""

    def __init__(self, config: pytest.Config) -> None:
        self._page = read_page(config.rootpath)
        self._is_worker = hasattr(config, "workerinput")
        self._seen: dict[str, dict[str, object]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Check the marks, and put them where the reports will carry them."""
        wrong: list[str] = []
        for item in items:
            marks = list(item.iter_markers("req"))
            ids = list(dict.fromkeys(str(name) for mark in marks for name in mark.args))
            found = [mistake for mark in marks for mistake in mistakes_in(mark, self._page)]
            if len(ids) > MARKS_MAX and not found:
                found.append(f"carries {len(ids)} requirements in all; {MARKS_MAX} is the most")
            wrong.extend(f"{item.nodeid}: the req mark {mistake}" for mistake in found)
            decisions = [mark.kwargs["decision"] for mark in marks if "decision" in mark.kwargs]
            if marks:
                item.user_properties.append((_PROPERTY, [*ids, *decisions]))
        if wrong:
            raise pytest.UsageError("\n".join(dict.fromkeys(wrong)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst outcome of set-up, call and tear-down."""
        ids = next((value for name, value in report.user_properties if name == _PROPERTY), None)
        if ids is None:
            return
        entry = self._seen.setdefault(report.nodeid, {"ids": ids, "outcome": "not run"})
        # An expected failure is reported as skipped; neither proves anything.
        if report.failed or report.skipped:
            entry["outcome"] = report.outcome
        elif report.when == "call" and entry["outcome"] == "not run":
            entry["outcome"] = "passed"

    def pytest_sessionfinish(self) -> None:
        """Write the results, unless this process only ran a share of the tests."""
        target = os.environ.get(RESULTS_VARIABLE)
        if target and not self._is_worker:
            path = Path(target)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self._seen, indent=1, sort_keys=True) + "\n", encoding="utf-8")
