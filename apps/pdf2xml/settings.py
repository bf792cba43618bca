# SPDX-License-Identifier: Apache-2.0
"""The settings from the environment: `PDF2XML_FOLDER` and so on, and `RETRY_MAX_ATTEMPTS` under the name its users know."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from apps.database import database_of
from redrive import ConfigurationError

PREFIX: Final = "PDF2XML_"
DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where files are, which gateway converts, and the limits. API and worker of one installation have the same."""

    folder: Path = Path("pdf2xml-data")
    """The database, the uploaded files, the results and the secret of the session cookies."""
    gateway_url: str = "http://127.0.0.1:8090"
    gateway_timeout: float = 120.0
    """Seconds for one conversion."""
    max_bytes: int = 50_000_000
    """Of one upload."""
    retry_max_attempts: int = 3
    retry_delays: tuple[float, ...] = (5.0, 15.0, 45.0)
    """Seconds before the next attempt, each +-20 %; the last one repeats."""
    breaker_mode: Literal["hold", "fail_fast"] = "hold"
    breaker_rate: float = 0.5
    breaker_window: float = 120.0
    breaker_min_calls: int = 3
    breaker_open_for: float = 10.0
    """Seconds between two questions about the gateway's health while the breaker is open."""
    breaker_ramp: float = 5.0
    """Seconds after closing in which held jobs are released gradually."""
    concurrency: int = 8
    """Conversions at the same time, in one worker."""
    lease: float = 30.0
    retention: float = 7 * DAY
    """Seconds for which results, and sources after their last use, are kept."""
    record_retention: float = 30 * DAY
    """Seconds for which the record of a job that has ended is kept."""
    purge_every: float = 60.0
    secure_cookie: bool = False
    """True behind HTTPS."""

    def __post_init__(self) -> None:
        for name in (
            "gateway_timeout",
            "max_bytes",
            "retry_max_attempts",
            "breaker_window",
            "concurrency",
            "breaker_open_for",
            "purge_every",
        ):
            if getattr(self, name) <= 0:
                raise ConfigurationError(
                    field=PREFIX + name.upper(),
                    value=getattr(self, name),
                    rule="must be above zero",
                    fix="Leave it out.",
                )
        if not self.retry_delays:
            raise ConfigurationError(
                field=f"{PREFIX}RETRY_DELAYS",
                value="",
                rule="must have a delay",
                fix="5,15,45 is the default.",
            )

    @property
    def database(self) -> Path | str:
        """The database of the jobs."""
        return database_of(self.folder / "jobs.db")

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the settings of an environment.

        Raises:
            ConfigurationError: a variable `PDF2XML_...` is not a setting, or a value does not fit.
        """
        names = {PREFIX + field.name.upper(): field.name for field in fields(cls)}
        given: dict[str, object] = {}
        for variable, value in environment.items():
            if variable.startswith(PREFIX) and variable not in names:
                similar = difflib.get_close_matches(variable, names, n=1)
                fix = f"Did you mean {similar[0]}?" if similar else f"The settings are {', '.join(names)}."
                raise ConfigurationError(field=variable, value=value, rule="is not a setting", fix=fix)
            if variable in names:
                given[names[variable]] = value
        if "RETRY_MAX_ATTEMPTS" in environment:
            given["retry_max_attempts"] = environment["RETRY_MAX_ATTEMPTS"]
        if "retry_delays" in given:
            given["retry_delays"] = [part.strip() for part in str(given["retry_delays"]).split(",")]
        try:
            return msgspec.convert(given, cls, strict=False, dec_hook=lambda kind, value: kind(value))
        except msgspec.ValidationError as error:
            raise ConfigurationError(
                field="PDF2XML_...", value=str(error), rule="has a value that does not fit", fix="Correct it."
            ) from error

    def environment(self) -> dict[str, str]:
        """Return the variables that `read` makes these settings of."""
        texts = {field.name: getattr(self, field.name) for field in fields(self)}
        texts["retry_delays"] = ",".join(str(delay) for delay in self.retry_delays)
        return {
            PREFIX + name.upper(): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in texts.items()
        }
