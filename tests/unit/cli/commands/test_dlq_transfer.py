# SPDX-License-Identifier: Apache-2.0
"""A long export reports how far it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.cli.commands.dlq_transfer import reported
from redrive.testing import VirtualClock


def test_an_export_reports_every_few_seconds_on_stderr(
    clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    def slow() -> Iterator[bytes]:
        for number in range(1_000, 1_008):
            clock.advance(1.1)
            yield str(number).encode()

    given = list(reported(slow(), 100_000))

    printed = capsys.readouterr()
    assert given == [str(number).encode() for number in range(1_000, 1_008)]
    assert printed.out == ""
    assert printed.err.splitlines() == ["3 of 100,000 letters exported", "6 of 100,000 letters exported"]


def test_a_short_export_reports_nothing(clock: VirtualClock, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(reported(iter([b"one"]), 1)) == [b"one"]
    assert capsys.readouterr().err == ""
