# SPDX-License-Identifier: Apache-2.0
"""How the groups of `__all__`, and the line about a name, are read from source."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tools.exports import UNGROUPED, groups_in, line_about

GROUPED = """
x = 1  # no group
__all__ = [
    # Running work
    "Pipeline",
    "stage",
    # Trouble
    "Failure",
]
"""


def test_comments_inside_all_are_the_headings() -> None:
    assert groups_in(GROUPED) == [("Running work", ["Pipeline", "stage"]), ("Trouble", ["Failure"])]


@pytest.mark.parametrize("source", ["", "x = 1", "__all__: list[str] = []"])
def test_a_package_that_exports_nothing_has_no_groups(source: str) -> None:
    assert groups_in(source) == []


def test_names_before_any_comment_have_no_heading_of_their_own() -> None:
    assert groups_in("__all__: tuple[str, ...] = ('a', 'b')") == [(UNGROUPED, ["a", "b"])]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package that takes a class, a function and two values from a module of its own."""
    folder = tmp_path / "sampled_package"
    folder.mkdir()
    (folder / "parts.py").write_text(
        'class Thing:\n    """A thing\n    of two lines.\n\n    And more.\n    """\n\n'
        'def make() -> Thing:\n    """Make a thing."""\n\nLimit = int | float\n"""How much is too much."""\nplain = 1\n'
    )
    (folder / "__init__.py").write_text(
        "from sampled_package.parts import Limit, Thing, make, plain as bare\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("sampled_package")
    for name in [name for name in sys.modules if name.startswith("sampled_package")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Thing", "A thing of two lines."),
        ("make", "Make a thing."),
        ("Limit", "How much is too much."),
        ("bare", ""),
    ],
)
def test_the_line_about_a_name_is_the_first_sentence_written_about_it(
    package: ModuleType, name: str, line: str
) -> None:
    assert line_about(package, name) == line
