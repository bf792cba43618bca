# SPDX-License-Identifier: Apache-2.0
"""Criticizer's settings from the environment, read once when a worker starts. They are never part of a job."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import unquote, urlsplit

import msgspec

from redrive import ConfigurationError, register_secret

PREFIX: Final = "CRITICIZER_"

_LISTS: Final = {"hosts": ",", "webhook_hosts": ",", "roots": os.pathsep}
"""The settings that are lists, and what is between their entries."""
SECRET_MIN: Final = 8
"""Shorter keys are not hidden: a private server may accept any word as a key, and hiding it would hide ordinary words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The addresses and limits of the services. Secrets are not in the repr, and are hidden in every dead letter."""

    llm_key: str = field(default="", repr=False)
    """Without one, the built-in reviewer is used."""
    llm_url: str = "https://api.openai.com/v1"
    llm_model: str = "gpt-4o-mini"
    webhook_url: str = field(default="", repr=False)
    """The address for `--notify webhook`; such addresses often contain a secret."""
    webhook_token: str = field(default="", repr=False)
    smtp_url: str = field(default="smtp://127.0.0.1:25", repr=False)
    """smtp://, smtp+starttls:// or smtps://, with user and password if necessary."""
    mail_from: str = "criticizer@localhost"
    pager_url: str = field(default="", repr=False)
    """A webhook for bugs and wrong settings, in addition to the log."""
    hosts: frozenset[str] = frozenset()
    """The hosts from which patches may be fetched, each `host` or `host:port`."""
    webhook_hosts: frozenset[str] = frozenset()
    """The hosts of other webhooks than `webhook_url` that an order may name, each `host` or `host:port`; they get no token."""
    roots: frozenset[str] = frozenset()
    """The folders below which repositories may be; empty for all that the worker can read."""
    timeout_seconds: float = 60.0
    """Time limit for a response, for each read, and for a whole patch, in seconds."""

    def __post_init__(self) -> None:
        mail_password = unquote(urlsplit(self.smtp_url).password or "")
        for secret in (self.llm_key, self.webhook_url, self.webhook_token, self.pager_url, mail_password):
            if len(secret) >= SECRET_MIN:
                register_secret(secret)

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the settings of an environment: `CRITICIZER_LLM_URL` and so on; the key may also be `OPENAI_API_KEY`.

        Raises:
            ConfigurationError: a variable `CRITICIZER_...` is not a setting.
        """
        names = {
            PREFIX + name.upper(): name for name in cls.__dataclass_fields__ if name != "timeout_seconds"
        }
        for variable in environment:
            if variable.startswith(PREFIX) and variable not in names:
                given = variable.removeprefix(PREFIX).lower()
                near = difflib.get_close_matches(given, names.values(), n=1)
                raise ConfigurationError(
                    field=variable,
                    # The value may be a secret.
                    value="<not shown>",
                    rule="is not a setting",
                    fix=f"Did you mean {PREFIX}{near[0].upper()}?"
                    if near
                    else f"The settings are {', '.join(names)}.",
                )
        plain = {
            name: value
            for variable, name in names.items()
            if name not in _LISTS and (value := environment.get(variable))
        }
        plain.setdefault("llm_key", environment.get("OPENAI_API_KEY", ""))
        lists = {
            name: _listed(environment.get(PREFIX + name.upper(), ""), mark) for name, mark in _LISTS.items()
        }
        return msgspec.convert({**plain, **lists}, cls)


def _listed(text: str, mark: str) -> list[str]:
    """Return the entries of a list; names of hosts have no case."""
    entries = (each.strip() for each in text.split(mark))
    return [each.lower() if mark == "," else each for each in entries if each]
