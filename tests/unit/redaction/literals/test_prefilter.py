# SPDX-License-Identifier: Apache-2.0
"""Very many literals: those that stand in a text are found in every form, and the others cost next to nothing."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Mapping
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.redaction.literals import prefilter
from redrive.redaction.literals.prefilter import ALL_MAX, LiteralIndex
from redrive.redaction.literals.search import Literals, SampleIndex
from redrive.redaction.process import redact, redact_end, redact_mapping, redact_start

MANY = {f'Zoë "Zo" Müller/<{number:05}>\nward 🙂 seven': "<payload:*>" for number in range(ALL_MAX + 500)}
LAST = list(MANY)[-1]
FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": json.dumps,
    "JSON with other letters": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON within JSON": lambda text: json.dumps(json.dumps(text)),
    "Python": repr,
    "percent": lambda text: quote(text, safe=""),
    "percent with slashes": quote,
    "lower percent": lambda text: quote(text).lower().replace("zo", "Zo").replace("m%c3", "M%c3"),
    "a form": quote_plus,
    "HTML": html.escape,
    "other line ends": lambda text: text.replace("\n", "\r\n"),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 inside other base64": lambda text: base64.b64encode(f"x: {text}, y".encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(f"??>{text}".encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_of_very_many_literals_is_found_in_every_form(form: str) -> None:
    written = FORMS[form](LAST)
    text = f"refused {written} at C:\\dir"

    assert redact(text, MANY) == redact(text, {LAST: "<payload:*>"}) != text


@pytest.mark.untraced
@pytest.mark.parametrize("form", FORMS)
def test_one_of_very_many_literals_is_found_in_a_text_that_is_cut(form: str) -> None:
    written = FORMS[form](LAST)
    start = redact_start(f"refused {written} {'y ' * 9_000}", MANY, read=8_000)
    end = redact_end(f"{'y ' * 9_000} refused {written}", MANY, read=8_000)

    assert start.startswith(redact(f"refused {written} ", {LAST: "<payload:*>"}))
    assert end.endswith(redact(f" refused {written}", {LAST: "<payload:*>"}))


def test_many_long_literals_do_not_keep_the_forms_of_a_short_one_from_being_looked_for() -> None:
    name = 'Zoë "Zo" Müller, ward seven'
    documents = {f"{number:03} " * 10_000: "<payload:*>" for number in range(17)}
    end = redact_end(
        f"{'y ' * 17_000} for {json.dumps(name)}", {name: "<payload:$>", **documents}, read=32_768
    )

    assert end.endswith('y  for "<payload:$>"')


def test_of_very_many_literals_only_those_that_stand_there_are_near() -> None:
    lines = (f"{line}\n" for line in LAST.split("\n"))

    assert LiteralIndex(MANY).candidates(f"refused {LAST}", 10_000) == dict.fromkeys(
        [LAST, *lines], "<payload:*>"
    )
    assert LiteralIndex(MANY).candidates("refused", 10_000) == {}


def test_literals_that_begin_alike_are_told_apart_at_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every eight characters of them stand in the text, and still only a few of them do."""
    monkeypatch.setattr(prefilter, "ALL_MAX", 10)
    text = "abbaabababbbaaaabbabbbabaab" * 40
    there = [text[at : at + 20] for at in range(27)] + [text[at : at + 300] for at in range(27)]
    others = [f"{one[:17]}{one[7:10][::-1]}" for one in there[:27]] + [f"{one}a" for one in there[27:]]
    found = LiteralIndex(dict.fromkeys([*there, *others, "abba", "nowhere"], "<payload:*>")).candidates(
        text, len(text)
    )

    assert set(found) == {each for each in (*there, *others, "abba") if each in text}
    assert len(found) < len({*there, *others})


@pytest.mark.untraced
def test_very_many_literals_are_indexed_once_for_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[set[str]] = []

    def counted(forms: set[str]) -> SampleIndex:
        built.append(forms)
        return SampleIndex(forms)

    monkeypatch.setattr(prefilter, "SampleIndex", counted)
    many = {f"{number:06} stands alone": "<payload:*>" for number in range(100_000)}
    told = redact_mapping({"seen": ["001234 stands alone", *(f"row {n} is bad" for n in range(200))]}, many)

    seen = told["seen"]
    assert isinstance(seen, list)
    assert seen[0] == "<payload:*>"
    assert [len(forms) for forms in built] == [len(many)]


@given(st.text(), st.integers(0, 5))
def test_the_readings_of_any_text_can_be_read(text: str, slashes: int) -> None:
    escapes = "\\" * slashes
    for reading in prefilter._readings(f"%{escapes}uD83D%E4\\U99999999\\x4&{text}"):
        assert reading.encode("utf-8", "surrogatepass")


def test_one_line_of_a_literal_that_is_longer_than_the_text_is_hidden() -> None:
    letter = "Dear Dr Smith\nthe patient spoke about her divorce\n" + "and so on\n" * 1_000

    assert redact("bad line: the patient spoke about her divorce", {letter: "<payload:$>"}) == (
        "bad line: <payload:$>"
    )
    assert "divorce" not in redact_start(
        f"bad line: the patient spoke about her divorce {'y ' * 9_000}", {letter: "<payload:$>"}, read=8_000
    )


def test_the_literals_of_a_payload_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = LiteralIndex({"first value": "<payload:$[0]>", "second value": "<payload:$[1]>"})
    compiled: list[Mapping[str, str]] = []

    def counted(literals: Mapping[str, str]) -> Literals:
        compiled.append(literals)
        return Literals(literals)

    monkeypatch.setattr(prefilter, "Literals", counted)

    assert redact("the first value is wrong", payload) == "the <payload:$[0]> is wrong"
    assert redact_mapping({"why": "not the second value"}, payload) == {"why": "not the <payload:$[1]>"}
    assert compiled == [payload]
