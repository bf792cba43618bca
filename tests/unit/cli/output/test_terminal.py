# SPDX-License-Identifier: Apache-2.0
"""What people see of a text: characters that would command their terminal are shown, and do nothing."""

from __future__ import annotations

import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from rich.text import Text

from redrive.cli.input import action
from redrive.cli.output import tables
from redrive.cli.output.terminal import SafeConsole, escaped, escaped_json

HOSTILE = "a\x00\x07\x08\r\x1b[31m\x1b]0;title\x07\x7f\x9b31m\u2028\u202e\u2066\ud800z"
VISIBLE = r"a\x00\x07\x08\x0d\x1b[31m\x1b]0;title\x07\x7f\x9b31m\u2028\u202e\u2066\ud800z"


def screen() -> tuple[SafeConsole, io.StringIO]:
    file = io.StringIO()
    return SafeConsole(file=file, width=200, color_system=None), file


def test_control_characters_are_shown_by_their_number() -> None:
    assert escaped(HOSTILE) == VISIBLE


def test_a_text_without_them_stays_with_its_lines_tabs_and_foreign_letters() -> None:
    text = "Grüße, 世界 🚀 שלום\n\tat line 3 [red]x[/red] C:\\new\n"

    assert escaped(text) == text


@given(st.text())
def test_nothing_that_commands_a_terminal_is_left_and_showing_again_changes_nothing(text: str) -> None:
    told = escaped(text)

    assert escaped(told) == told
    assert all(
        unicodedata.category(each) not in {"Cc", "Cs"} and unicodedata.bidirectional(each) not in BIDI
        for each in told
        if each not in "\n\t"
    )


BIDI = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_json_says_the_same_with_such_characters_escaped(text: str) -> None:
    encoded = escaped_json(json.dumps(text, ensure_ascii=False))

    assert json.loads(encoded) == text
    assert escaped(encoded) == encoded


def test_a_screen_shows_them_wherever_a_text_comes_from() -> None:
    console, file = screen()
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(tables.cell([HOSTILE]))
    table.add_row(tables.cell({HOSTILE: HOSTILE}))

    console.print(HOSTILE)
    console.print(table)

    assert file.getvalue().count(VISIBLE) == 6


def test_a_text_of_rich_itself_and_a_live_picture_are_no_way_around_it() -> None:
    console, file = screen()

    console.print(Text("x\x1b[31m\x9b\u202ey"))
    with Live(Text("p\x1b]0;q"), console=console, auto_refresh=False):
        pass

    assert r"x\x1b[31m\x9b\u202ey" in file.getvalue()
    assert r"p\x1b]0;q" in file.getvalue()


def test_a_screen_still_gives_its_own_commands() -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, color_system="standard")

    console.print(Text("x\x1b", style="red"))
    console.show_cursor(show=False)

    assert file.getvalue() == "\x1b[31mx\\x1b\x1b[0m\n\x1b[?25l"


def test_markup_links_and_names_of_pictures_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = "[red]x[/red] [link=http://evil.example]y[/link] :smile: [/]"

    tables.console().print(text)
    tables.print_facts({"said": text, text: 1}, "table")
    tables.print_message(text)

    out, err = capsys.readouterr()
    assert out.count(text) == 3
    assert err.count(text) == 1


def test_a_question_shows_them_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    action.Action().confirm(f"Replay {HOSTILE}?")

    assert f"Replay {VISIBLE}?" in capsys.readouterr().err
