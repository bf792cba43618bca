# SPDX-License-Identifier: Apache-2.0
"""Numbers of people: their check digits, and the words that a number without one needs beside it."""

from __future__ import annotations

import pytest

from redrive.redaction import redact_text
from redrive.redaction.personal import numbers


def test_checksums_refuse_what_is_malformed() -> None:
    assert not numbers.is_iban("GB82WEST")
    assert not numbers.is_iban("XX82WEST12345698765432")
    assert not numbers.is_rrn("9913011234567")
    assert not numbers.is_rrn("9902301234567")
    assert not numbers.is_nir("199130000000000")
    assert not numbers.is_card("0000000000000000")
    assert not numbers.is_german_tax_id("01234567890")


def test_bare_nine_digits_are_an_id_only_after_the_word() -> None:
    assert redact_text("ssn 123456789 id 123456789") == "ssn <redacted:national-id> id 123456789"
    assert (
        redact_text("RRN: 1701021234567, n 1701021234567") == "RRN: <redacted:national-id>, n 1701021234567"
    )


def test_a_phone_number_without_groups_needs_a_word_before_it() -> None:
    assert redact_text("phone: 01012345678") == "phone: <redacted:phone>"
    assert redact_text("count: 01012345678") == "count: 01012345678"


def test_numbers_side_by_side_are_judged_one_by_one() -> None:
    assert redact_text("4111111111111111 4111111111111111") == "<redacted:card> <redacted:card>"
    assert redact_text("20240501 4111111111111111") == "20240501 <redacted:card>"


@pytest.mark.parametrize("line", ["phone: 030 901820", "Tel. 030 901820", "mobile=202 555 0143"])
def test_a_short_number_is_a_phone_number_after_a_telling_word(line: str) -> None:
    assert redact_text(line).endswith("<redacted:phone>")


@pytest.mark.parametrize("number", ["AB123456C", "AB 12 34 56 C"])
def test_an_insurance_number_is_hidden_before_words_in_capitals(number: str) -> None:
    assert redact_text(f"{number} IS ON FILE NOW 12") == "<redacted:national-id> IS ON FILE NOW 12"
