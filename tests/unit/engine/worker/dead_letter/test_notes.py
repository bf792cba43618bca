# SPDX-License-Identifier: Apache-2.0
"""What a stage notes under names that become equal once they are redacted or cut: each note is kept."""

from __future__ import annotations

import base64

import msgspec

from redrive.engine.pipeline.context import NOTE_MAX, TEXT_MAX
from redrive.engine.worker.dead_letter import JobRedactor, safe_notes
from tests.unit.engine.worker.letters_made import KEY, claimed, prose, shown_of

VALUE = "Jane Roe lives in ward seven"


def kept(notes: dict[str, str], *values: str) -> dict[str, str]:
    return msgspec.json.decode(safe_notes(notes, JobRedactor(claimed(*values))) or "{}", type=dict[str, str])


def test_names_that_are_redacted_alike_are_numbered() -> None:
    encoded = base64.b64encode(VALUE.encode()).decode()

    assert kept({VALUE: "1", encoded: "2", VALUE.replace(" ", "%20"): "3"}, VALUE) == {
        "<payload:$[0]>": "1",
        "<payload:$[0]> (2)": "2",
        "<payload:$[0]> (3)": "3",
    }


def test_names_that_are_cut_alike_are_numbered() -> None:
    notes = {f"{'x ' * NOTE_MAX}{number}": str(number) for number in range(12)}
    kept_notes = kept(notes, "plain enough")

    assert list(kept_notes.values()) == list(notes.values())
    assert max(map(len, kept_notes)) == NOTE_MAX
    assert [list(kept_notes)[place][-5:] for place in (1, 9)] == ["x (2)", " (10)"]


def test_a_name_that_is_already_numbered_is_left_to_its_note() -> None:
    assert kept({VALUE: "1", "<payload:$[0]> (2)": "2", f"{VALUE}": "1", VALUE.upper(): "3"}, VALUE) == {
        "<payload:$[0]>": "1",
        "<payload:$[0]> (2)": "2",
        VALUE.upper(): "3",
    }


def test_of_a_long_note_the_beginning_is_kept() -> None:
    text = "a word " * NOTE_MAX

    assert kept({"seen": text}, "plain enough") == {"seen": text[:NOTE_MAX]}


def test_no_more_is_read_of_a_name_than_of_what_is_noted() -> None:
    """Half a secret where it is cut shows neither."""
    value = prose(1, TEXT_MAX - 100)
    for before in range(40, 100, 6):
        kept_notes = kept({f"{value}{' ' * before}ghp_{KEY[:36]}{' y' * 500_000}": "seen"}, value)

        assert list(kept_notes.values()) == ["seen"]
        assert shown_of(KEY, "".join(kept_notes)) + shown_of(value, "".join(kept_notes)) == []
