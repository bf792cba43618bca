# SPDX-License-Identifier: Apache-2.0
"""What shares an installation is kept together, under names that exist."""

from __future__ import annotations

from tests.scheduling import GROUPS, group_of
from tests.tidy.tree import ROOT


def test_every_group_has_tests() -> None:
    assert [path for path in GROUPS if not (ROOT / path).exists()] == []


def test_tests_of_one_installation_are_kept_together_and_others_are_alone() -> None:
    page, flow = "apps/pdf2xml/tests/test_page.py::test_a[1]", "apps/pdf2xml/tests/test_flow.py::test_b@c"
    alone = "apps/forge/tests/test_example.py::test_a"

    assert (group_of(page), group_of(flow), group_of(alone)) == ("pdf2xml", "pdf2xml", alone)
    assert group_of("tests/test_docs.py::test_a") == group_of("tests/test_tidy.py::test_b")
