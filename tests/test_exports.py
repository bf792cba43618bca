# SPDX-License-Identifier: Apache-2.0
"""The public names: few, grouped, sorted, and the same in `redrive.__all__`, in reality and on the reference page."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from types import ModuleType

import pytest

import redrive
from tests.tidy.tree import ROOT
from tools.exports import UNGROUPED, groups_in, line_about

NAMES_MAX = 48
GUARD_MODULES_MAX = 40


def test_the_package_says_what_it_exports() -> None:
    assert redrive.__all__
    assert len(redrive.__all__) == len(set(redrive.__all__))


def test_the_public_names_are_few() -> None:
    assert len(redrive.__all__) <= NAMES_MAX


def test_every_exported_name_exists() -> None:
    assert [name for name in redrive.__all__ if not hasattr(redrive, name)] == []


def test_a_name_is_loaded_when_it_is_first_used() -> None:
    program = (
        "import sys; from redrive import guard; print(*(m for m in sys.modules if m.startswith('redrive')))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    loaded = run.stdout.split()
    assert "redrive.engine.guard.guard" in loaded
    unused = ("redrive.store", "redrive.client", "redrive.ops", "redrive.redaction")
    assert [name for name in loaded if name.startswith(unused)] == []
    assert len(loaded) <= GUARD_MODULES_MAX


def test_the_documented_submodules_are_attributes_and_unknown_names_are_not() -> None:
    program = (
        "import redrive; print(redrive.errors.RedriveError, redrive.sinks.Sink, redrive.testing.run_inline)"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert set(redrive.__all__) <= set(dir(redrive))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(redrive, "nothing")  # noqa: B009 - a type checker would refuse it.


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

    assert re.findall(r"^### `(\w+)`$", page, re.MULTILINE) == list(redrive.__all__)


@pytest.mark.parametrize(
    "name", ["Context", "Failure", "Job", "Pipeline", "Redrive", "RunReport", "rd.letters", "rd.jobs"]
)
def test_the_reference_page_lists_every_member_of_a_class(name: str) -> None:
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    section = page.partition(f"### `{name}`\n")[2].partition("\n### ")[0]

    with redrive.connect(":memory:") as rd:
        of = getattr(rd, name.removeprefix("rd.")) if name.startswith("rd.") else getattr(redrive, name)
        members = {each for each in dir(of) if not each.startswith("_")}

    assert members
    assert members - set(re.findall(r"^- `(?:await )?\w*\.(\w+)", section, re.MULTILINE)) == set()
