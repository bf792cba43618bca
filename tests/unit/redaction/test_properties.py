# SPDX-License-Identifier: Apache-2.0
"""Laws that hold for every text and every structure."""

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.redaction import Literals, redact_text, redact_value

from . import carried, carriers, odd
from .drawn_secrets import ALNUM, NAMED, TOKENS, of
from .keep import KEPT
from .people import PERSONAL

# Many inputs for few lines.
pytestmark = pytest.mark.untraced

FRAGMENTS = st.sampled_from(
    [
        *["password", "token", "=", ": ", "'", '"', "\\", "\\n", "\n", " ", "<", ">", "</", "://", "@", "a.com", "eyJ", "-----BEGIN ", "PRIVATE", "KEY-----"],
        *["Authorization", "Bearer ", "Cookie", "<redacted:", "<redacted:email>", "<payload:a.b>", "sk-", "010-1234-5678", "4111", "{", "}", "[", "(", ")", ","],
        *["&", "?", "key", "%3D", "%40", "\U000f0000", "\u0130", "é", "hunter2", "AKIA", "+", "-", "0", "1", "9", "is ", "--", "-u ", "curl ", "value", "|", ";", "$"],
    ]
)  # fmt: skip
SEEDS = st.integers(0, 2**32 - 1)
TEMPLATES = [
    t
    for block in (carried.AUTHORIZATION, carried.URLS, carried.ASSIGNED, odd.CERTAIN)
    for t in carried.templates(block)
]


def secret_laden(seed: int) -> str:
    """Return a text full of secrets, side by side and cut off."""
    draw = random.Random(seed)
    pieces = []
    for _ in range(draw.randrange(1, 8)):
        choice = draw.randrange(4)
        if choice == 0:
            pieces.append(draw.choice(list(TOKENS.values()))(draw))
        elif choice == 1:
            pieces.append(draw.choice(list(PERSONAL.values()))(draw))
        elif choice == 2:
            template = draw.choice(TEMPLATES)
            pieces.append(template.format(*[of(ALNUM, 20)(draw)] * template.count("{}")))
        else:
            name, value = draw.choice(list(NAMED.values()))
            pieces.append(draw.choice(list(carriers.NAMED.values()))(name, value(draw)))
        if draw.random() < 0.3:
            pieces[-1] = pieces[-1][: draw.randrange(len(pieces[-1]) + 1)]
    return draw.choice(["", " ", "\n", ",", "'", "&"]).join(pieces)


@given(st.text(max_size=300))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact_text(text)

    assert redact_text(once) == once


@given(st.lists(FRAGMENTS, max_size=30).map("".join))
@settings(max_examples=400)
def test_redacting_twice_is_redacting_once_for_telling_fragments(text: str) -> None:
    once = redact_text(text)

    assert redact_text(once) == once


@given(SEEDS)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_redacting_twice_is_redacting_once_for_texts_full_of_secrets(seed: int) -> None:
    once = redact_text(secret_laden(seed))

    assert redact_text(once) == once


@given(
    SEEDS,
    st.sampled_from(sorted(TOKENS)),
    st.lists(st.sampled_from(KEPT), max_size=3),
    st.lists(st.sampled_from(KEPT), max_size=3),
)
def test_a_planted_token_never_survives(seed: int, kind: str, before: list[str], after: list[str]) -> None:
    secret = TOKENS[kind](random.Random(seed))

    redacted = redact_text("\n".join([*before, f"value {secret} end", *after]))

    assert secret not in redacted
    assert "\n".join(before) in redacted


@given(
    st.text(min_size=8, max_size=40).filter(
        lambda literal: literal.strip(" <>:") != "" and "<" not in literal
    ),
    st.text(max_size=40),
    st.text(max_size=40),
)
def test_a_planted_literal_never_survives(literal: str, before: str, after: str) -> None:
    redacted = redact_text(before + literal + after, Literals({literal: "<redacted:secret>"}))

    assert literal not in redacted.replace("<redacted:secret>", "") or literal in "<redacted:secret>"


HARMLESS = st.one_of(
    st.sampled_from(KEPT),
    st.uuids().map(str),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.integers(0, 9999).map(lambda line: f'  File "/app/module.py", line {line}, in run'),
    st.from_regex(r"/(?:[a-z]{3,9}/){1,4}[a-z]{3,8}\.py", fullmatch=True),
    st.from_regex(r"\b[0-9a-f]{40}\b", fullmatch=True),
    st.from_regex(r"[A-Z][a-z]{3,9}Error: [a-z ]{3,30}", fullmatch=True).filter(
        lambda text: "pass" not in text and "pwd" not in text
    ),
)


@given(st.lists(HARMLESS, max_size=8))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_text_without_secrets_stays_as_it_is(parts: list[str]) -> None:
    text = "\n".join(part for part in parts if "BEGIN" not in part)

    assert redact_text(text) == text


KEYS = st.one_of(
    st.sampled_from(["password", "user", "token_count", "X-Api-Key", "note"]),
    st.text(max_size=6),
    st.integers(),
    st.none(),
    st.binary(max_size=4),
)
STRUCTURES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(max_size=20),
        st.binary(max_size=10),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4), st.tuples(inner, inner)
    ),
    max_leaves=20,
)


def shape(value: object) -> object:
    """Return what a structure looks like with its scalars, and whatever a placeholder hides, left out."""
    if isinstance(value, dict):
        return [shape(item) for item in value.values()]
    if isinstance(value, (list, tuple)):
        return type(value), [shape(item) for item in value]
    return None


@given(STRUCTURES.filter(lambda value: "assword" not in repr(value) and "Api-Key" not in repr(value)))
def test_a_structure_keeps_its_shape(value: object) -> None:
    assert shape(redact_value(value)) == shape(value)


@given(STRUCTURES)
def test_a_structure_is_never_changed_and_redacting_twice_is_redacting_once(value: object) -> None:
    before = copy.deepcopy(value)

    once = redact_value(value)

    assert repr(value) == repr(before)
    assert repr(redact_value(once)) == repr(once)
