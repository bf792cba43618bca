# SPDX-License-Identifier: Apache-2.0
"""Tables for people: how wide their columns are, and what stands in a cell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.cli.output.tables import GAP, WIDTH_MIN, fitting, print_table, relative_time


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.integers(20, 250))
def test_columns_fit_or_are_as_narrow_as_can_be_read(widths: list[int], limit: int) -> None:
    fit = fitting(widths, limit)

    assert all(
        after == before or WIDTH_MIN <= after < before for before, after in zip(widths, fit, strict=True)
    )
    is_fitting = sum(fit) + GAP * (len(fit) - 1) <= limit
    assert is_fitting or all(
        each <= WIDTH_MIN or each == before for each, before in zip(fit, widths, strict=True)
    )


def test_the_widest_columns_are_cut_first_and_share_what_is_left() -> None:
    assert fitting([3, 60, 40, 10], 80) == [3, 30, 31, 10]


def test_columns_that_fit_are_left_alone() -> None:
    assert fitting([3, 10], 80) == [3, 10]


def test_a_row_is_one_line_whatever_its_texts_contain(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"id": 1, "message": "one\ntwo", "note": None}], ("id", "message", "note"))

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["id", "message"],
        ["1", "one", "two"],
    ]


def test_nothing_is_cut_where_there_is_no_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "x" * 500

    print_table([{"id": 1, "message": long}], ("id", "message"))

    assert long in capsys.readouterr().out


def test_an_instant_within_a_second_is_now() -> None:
    now = datetime.now(UTC)

    assert relative_time(now) == "now"
    assert relative_time(now - timedelta(hours=3)) == "3 h ago"
