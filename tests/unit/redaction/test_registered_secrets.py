# SPDX-License-Identifier: Apache-2.0
"""Secrets of the process that are no Unicode: hidden like others, and never part of an error."""

from __future__ import annotations

import os

import pytest

from redrive.engine.pipeline.codec import storable
from redrive.errors import ConfigurationError
from redrive.redaction import process
from redrive.redaction.literals.search import Literals
from redrive.redaction.process import redact, register_secret

SECRET = "pä\udce9ss word99"


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_known", process._Known({}, frozenset()))


def test_a_secret_that_cannot_be_encoded_is_hidden_as_it_is_and_as_it_is_stored() -> None:
    register_secret(SECRET)

    assert redact(f"got {SECRET}") == "got <redacted:secret>"
    assert redact(f"got {storable(SECRET)}") == "got <redacted:secret>"


def test_a_secret_of_the_environment_may_be_no_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"SHOP_PASSWORD", b"na\xe9f-pass-word-123")

    assert redact(f"got {os.environ['SHOP_PASSWORD']}") == "got <redacted:secret>"


def test_a_secret_that_cannot_be_compiled_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever goes wrong with it: the error of a codec holds what it could not encode."""

    def broken(_self: Literals, literals: dict[str, str]) -> None:
        "".join(literals).encode("ascii")

    monkeypatch.setattr(Literals, "__init__", broken)
    with pytest.raises(ConfigurationError) as caught:
        register_secret(SECRET)

    assert "word99" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
