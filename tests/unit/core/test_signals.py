# SPDX-License-Identifier: Apache-2.0
"""Signals: their public names are part of dead letters."""

from __future__ import annotations

import pytest

from redrive import Cancel, ConfigurationError, Fail, Finish, Retry, Skip, Snooze


@pytest.mark.parametrize("signal", [Cancel, Fail, Finish, Retry, Skip, Snooze])
def test_a_signal_has_its_public_name(signal: type[Exception]) -> None:
    assert signal.__module__ == "redrive"


def test_a_signal_of_an_application_keeps_its_own() -> None:
    class Refusal(Fail):
        """A refusal of this application."""

    assert Refusal.__module__ == __name__


@pytest.mark.parametrize("reason", ["", "  ", None, 7])
def test_a_skip_says_why(reason: object) -> None:
    with pytest.raises(ConfigurationError, match="must say why"):
        Skip(reason)  # type: ignore[arg-type]
