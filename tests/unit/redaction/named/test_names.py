# SPDX-License-Identifier: Apache-2.0
"""Names in every case style, and how certain what they mean is."""

from __future__ import annotations

import pytest

from redrive.redaction.named.names import meaning_of_name, words_of


def test_words_of_a_name_in_every_case_style() -> None:
    assert (
        words_of("dbPassword")
        == words_of("DB_PASSWORD")
        == words_of("db-password")
        == words_of("db.password2")
        == ["db", "password"]
    )
    assert words_of("APIKey") == ["api", "key"]
    assert meaning_of_name("") is None
    assert meaning_of_name("123") is None


@pytest.mark.parametrize("name", ["token_github", "session_id", "signature", "my_key", "first_pass"])
def test_an_uncertain_name_is_told_as_such(name: str) -> None:
    said = meaning_of_name(name)

    assert said is not None
    assert not said.certain
