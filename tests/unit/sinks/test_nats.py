# SPDX-License-Identifier: Apache-2.0
"""The NATS sink without a server: what it refuses, and what it never shows. `tests/wire_store` has the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from redrive import ConfigurationError, redact
from redrive.sinks import Nats
from redrive.sinks import nats as module


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"url": "http://127.0.0.1"}, "url"),
        ({"url": "nats://"}, "url"),
        ({"url": "nats://host:0"}, "url"),
        ({"url": 4222}, "url"),
        ({"stream": "jobs.dlq"}, "stream"),
        ({"stream": ""}, "stream"),
        ({"subject": "jobs.*"}, "subject"),
        ({"subject": "jobs..dlq"}, "subject"),
        ({"subject": None}, "subject"),
        ({"body": "json"}, "body"),
        ({"payload": "yes"}, "payload"),
        ({"input": "yes"}, "input"),
        ({"max_age": 0}, "max_age"),
        ({"max_age": "90d"}, "max_age"),
    ],
)
def test_wrong_settings_are_refused_by_name(wrong: dict[str, object], field: str) -> None:
    good: dict[str, object] = {"url": "nats://127.0.0.1:4222", "stream": "orders", "subject": "orders.dlq"}

    with pytest.raises(ConfigurationError) as caught:
        Nats(**(good | wrong))  # type: ignore[arg-type]

    assert caught.value.field == f"Nats(nats).{field}"


def test_a_password_in_the_address_is_shown_nowhere() -> None:
    sink = Nats("nats://ann:sesame-street@host:4222", stream="orders", subject="orders.dlq")

    assert repr(sink) == "Nats('host', stream='orders', name='nats')"
    assert "sesame" not in redact("it says sesame-street")


def test_without_the_library_the_sink_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _name: None)

    with pytest.raises(ConfigurationError, match=r"redrive\[nats\]"):
        Nats("nats://127.0.0.1:4222", stream="orders", subject="orders.dlq")


def test_the_library_is_loaded_only_when_a_letter_is_delivered() -> None:
    script = (
        "import sys; from redrive.sinks import Nats; Nats('nats://h:1', stream='s', subject='s');"
        "sys.exit(any(name.split('.')[0] == 'nats' for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
