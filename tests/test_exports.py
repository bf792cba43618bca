# SPDX-License-Identifier: Apache-2.0
"""The public names: few, grouped, sorted, and the same in `redrive.__all__`, in reality and on the reference page."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import redrive
from tests.tidy.tree import ROOT
from tools.exports import UNGROUPED, groups_in, line_about

NAMES_MAX = 40


def test_the_package_says_what_it_exports() -> None:
    assert redrive.__all__
    assert len(redrive.__all__) == len(set(redrive.__all__))


def test_the_public_names_are_few() -> None:
    assert len(redrive.__all__) <= NAMES_MAX


def test_every_exported_name_exists() -> None:
    assert [name for name in redrive.__all__ if not hasattr(redrive, name)] == []


def test_no_other_name_looks_public() -> None:
    others = {
        name
        for name, value in vars(redrive).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    # `from __future__ import annotations` leaves a name behind in every module.
    assert others - {"annotations"} - set(redrive.__all__) == set()


def test_the_names_stand_in_headed_groups_each_sorted() -> None:
    groups = groups_in(inspect.getsource(redrive))

    assert [name for _, names in groups for name in names] == list(redrive.__all__)
    assert [heading for heading, _ in groups if heading == UNGROUPED] == []
    assert [names for _, names in groups if names != sorted(names)] == []


def test_every_exported_name_says_what_it_is() -> None:
    assert [name for name in redrive.__all__ if not line_about(redrive, name)] == []


def test_the_reference_page_lists_exactly_the_exported_names() -> None:
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| `(\w+)` \| \S", page, re.MULTILINE) == list(redrive.__all__)
