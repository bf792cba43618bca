# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in: chooses what is traced for coverage, because tracing doubles the time of a test.

The modules of the package are imported before the tests are collected, and only that is traced of it: the rest are mostly imports
of client libraries. Not traced are tests marked `untraced`: what runs again over a second store, or gives thousands of inputs to a
few lines, covers nothing that others do not. Nor are the programs that tests start, which run what other tests run in this process,
but for those of tests marked `traced_programs`. Without coverage this changes nothing.
"""

from __future__ import annotations

import os
import pkgutil
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Final

import pytest

import redrive

PROGRAMS: Final = "COVERAGE_PROCESS_CONFIG"
"""The variable by which the programs that a process starts know that they are traced."""
MARKS: Final = (
    "untraced: covers nothing that other tests do not",
    "traced_programs: covers what runs in no test, but in the programs that it starts",
)
_NAME: Final = "redrive-tracing"


def register(config: pytest.Config) -> None:
    """Add the plug-in to this run, once."""
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    if not config.pluginmanager.has_plugin(_NAME):
        config.pluginmanager.register(Tracing(), _NAME)


@contextmanager
def untraced() -> Generator[None]:
    """Trace neither this thread nor those that are started meanwhile."""
    here, there = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(there)
        sys.settrace(here)


@contextmanager
def untraced_programs() -> Generator[None]:
    """Trace no programs that are started meanwhile."""
    kept = os.environ.pop(PROGRAMS, None)
    try:
        yield
    finally:
        if kept is not None:
            os.environ[PROGRAMS] = kept


class Tracing:
    """The hooks."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Import the package, and collect the tests untraced."""
        if sys.gettrace() is not None:
            for module in pkgutil.walk_packages(redrive.__path__, "redrive."):
                # The one to be run is no module of its own.
                if not module.name.endswith("__main__"):
                    import_module(module.name)
        with untraced():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a test with what is traced of it."""
        with ExitStack() as stack:
            if item.get_closest_marker("traced_programs") is None:
                stack.enter_context(untraced_programs())
            if item.get_closest_marker("untraced") is not None:
                stack.enter_context(untraced())
            return (yield)
