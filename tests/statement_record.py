# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in: fails a run of the conformance suite in which some declared statement was not run on some store.

`tests/conformance/conftest.py` notes what each test has run. With several test processes the names travel inside the test reports,
so only the process that collects the reports judges, and only a store on which every test of the suite has reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set as AbstractSet
from importlib import import_module
from typing import Any, Final

import pytest

from redrive.store.statements.statement import Statement
from redrive.store.statements.text import FILES

PROPERTY: Final = "redrive-statements"
"""The property of a report: the store of a test, and what it has run there."""
_NAME: Final = "redrive-statement-record"


def declared() -> dict[str, Statement[..., Any]]:
    """Return all declared statements by name."""
    modules = (import_module(f"redrive.store.statements.{file}") for file in FILES)
    return {each.name: each for one in modules for each in vars(one).values() if isinstance(each, Statement)}


def suite() -> frozenset[str]:
    """Return the names of the tests of the conformance suite."""
    tests = import_module("redrive.testing.conformance").StoreConformance
    return frozenset(name for name in dir(tests) if name.startswith("test_"))


def register(config: pytest.Config) -> None:
    """Add the plug-in to this run, once; the processes of a run leave it to the one that has started them."""
    if not hasattr(config, "workerinput") and not config.pluginmanager.has_plugin(_NAME):
        config.pluginmanager.register(StatementRecord(), _NAME)


class StatementRecord:
    """The hooks, with what the reports said so far."""

    def __init__(self) -> None:
        self._ran: dict[str, set[str]] = defaultdict(set)
        self._tests: dict[str, set[str]] = defaultdict(set)
        self._left_out: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a test has run."""
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, list):
                store, *ran = value
                self._ran[store].update(ran)
                self._tests[store].add(report.location[2].rpartition(".")[2].partition("[")[0])

    def left_out(self, tests: AbstractSet[str], names: AbstractSet[str]) -> dict[str, list[str]]:
        """Return, for each store on which all tests have reported, the statements that none of them has run."""
        whole = [store for store, seen in self._tests.items() if seen >= tests]
        return {store: missing for store in whole if (missing := sorted(names - self._ran[store]))}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that has left something out."""
        self._left_out = self.left_out(suite(), declared().keys()) if self._tests else {}
        if self._left_out:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what was left out."""
        for store, missing in self._left_out.items():
            terminalreporter.write_line(
                f"no conformance test runs these statements on {store}: {', '.join(missing)}", red=True
            )
