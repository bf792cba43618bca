# SPDX-License-Identifier: Apache-2.0
"""What Criticizer reads from the environment, once, when a worker starts. Jobs never carry any of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import unquote, urlsplit

import msgspec

from redrive import register_secret

SECRET_MIN: Final = 8
"""What is shorter is not hidden: a server of one's own may take any word for a key, and hiding that would hide ordinary words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the services are, and what may be asked of them. Secrets are not shown, and are hidden from every dead letter."""

    llm_key: str = field(default="", repr=False)
    """Without one, the built-in reviewer serves."""
    llm_url: str = "https://api.openai.com/v1"
    llm_model: str = "gpt-4o-mini"
    webhook_url: str = field(default="", repr=False)
    """Where `--notify webhook` goes; such addresses often hold a secret of their own."""
    webhook_token: str = field(default="", repr=False)
    smtp_url: str = field(default="smtp://127.0.0.1:25", repr=False)
    """smtp://, smtp+starttls:// or smtps://, with user and password if need be."""
    mail_from: str = "criticizer@localhost"
    pager_url: str = field(default="", repr=False)
    """Who is told about bugs and wrong settings, besides the log."""
    hosts: frozenset[str] = frozenset()
    """The hosts patches may be fetched from, each `host` or `host:port`."""
    timeout_seconds: float = 60.0
    """How long is waited for an answer, for each part of it, and for a whole patch."""

    def __post_init__(self) -> None:
        mail_password = unquote(urlsplit(self.smtp_url).password or "")
        for secret in (self.llm_key, self.webhook_url, self.webhook_token, self.pager_url, mail_password):
            if len(secret) >= SECRET_MIN:
                register_secret(secret)

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the settings of an environment: `CRITICIZER_LLM_URL` and so on; the key may also be `OPENAI_API_KEY`."""
        plain = {
            name: value
            for name in cls.__dataclass_fields__
            if name not in {"hosts", "timeout_seconds"}
            and (value := environment.get(f"CRITICIZER_{name.upper()}"))
        }
        plain.setdefault("llm_key", environment.get("OPENAI_API_KEY", ""))
        hosts = (host.strip().lower() for host in environment.get("CRITICIZER_HOSTS", "").split(","))
        return msgspec.convert({**plain, "hosts": list(filter(None, hosts))}, cls)
