# SPDX-License-Identifier: Apache-2.0
"""CollabIQ's settings from the environment: `COLLABIQ_SOURCE=gmail` and so on. The defaults work without a network."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, Literal, Self, get_args, get_type_hints

import msgspec

from apps.database import database_of
from redrive import ConfigurationError

PREFIX: Final = "COLLABIQ_"
LISTED: Final = "README.md lists the settings."


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The mail source, the extractor, the page sink, and the addresses of the services."""

    folder: str = "data"
    """The folder of all output: the database, pages, logs, dead letters."""
    source: Literal["local", "imap", "gmail"] = "local"
    extractor: Literal["builtin", "gemini"] = "builtin"
    sink: Literal["local", "notion"] = "local"
    mailbox: str = "mail.mbox"
    """An mbox file, or the folder of a Maildir."""
    imap_host: str = "localhost"
    imap_port: int = 993
    imap_tls: bool = True
    imap_user: str = ""
    imap_folder: str = "INBOX"
    gmail_url: str = "https://gmail.googleapis.com"
    gmail_query: str = "newer_than:7d"
    gemini_url: str = "https://generativelanguage.googleapis.com"
    gemini_model: str = "gemini-2.5-flash"
    notion_url: str = "https://api.notion.com"
    notion_data_source: str = ""
    infisical_url: str = "https://app.infisical.com"
    infisical_client_id: str = ""
    infisical_client_secret: str = field(default="", repr=False)
    infisical_project: str = ""
    infisical_environment: str = "prod"
    env_file: str = ".env"
    concurrency: int = 4
    lease: float = 30.0
    """Seconds after which another worker may take over the jobs of a dead one."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the settings from `COLLABIQ_...`; missing ones keep their default.

        Raises:
            ConfigurationError: there is no such setting, or a value does not fit.
        """
        found = os.environ if environment is None else environment
        names = {PREFIX + each.name.upper(): each.name for each in fields(cls)}
        for variable in found:
            if variable.startswith(PREFIX) and variable not in names:
                # Similar without the prefix that all have. The value may be a secret.
                fix = _nearest(
                    variable.removeprefix(PREFIX), [each.upper() for each in names.values()], PREFIX
                )
                raise ConfigurationError(
                    field=variable, value="<hidden>", rule="is not a setting", fix=fix or LISTED
                )
        given = {name: found[variable] for variable, name in names.items() if variable in found}
        try:
            return msgspec.convert(given, cls, strict=False)
        except msgspec.ValidationError as error:
            raise _refused(given, error, get_type_hints(cls)) from None

    @property
    def root(self) -> Path:
        """The folder of all output."""
        return Path(self.folder)

    @property
    def database(self) -> Path | str:
        """The database of the jobs."""
        return database_of(self.root / "collabiq.db")

    @property
    def secrets_needed(self) -> tuple[str, ...]:
        """The names of the keys that the configured services need; none for the embedded defaults."""
        asked = {
            "IMAP_PASSWORD": self.source == "imap",
            "GMAIL_TOKEN": self.source == "gmail",
            "GEMINI_API_KEY": self.extractor == "gemini",
            "NOTION_TOKEN": self.sink == "notion",
        }
        return tuple(name for name, is_asked in asked.items() if is_asked)


def _nearest(word: str, known: Iterable[str], prefix: str = "") -> str | None:
    """Return a sentence with the most similar word; None if none is similar."""
    similar = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean {prefix}{similar[0]}?" if similar else None


def _refused(
    given: Mapping[str, str], error: msgspec.ValidationError, kinds: Mapping[str, object]
) -> ConfigurationError:
    """Return the error for a value that does not fit, with the name of its variable."""
    rule, _, path = str(error).partition(" - at `$.")
    name = path.rstrip("`")
    choices = [str(each) for each in get_args(kinds[name])]
    if choices:
        rule = f"must be one of {', '.join(choices)}"
    return ConfigurationError(
        field=PREFIX + name.upper(),
        value=given[name],
        rule=rule,
        fix=_nearest(given[name], choices) or LISTED,
    )
