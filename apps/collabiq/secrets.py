# SPDX-License-Identifier: Apache-2.0
"""Get keys from Infisical, once before any mail is read, or from the `.env` file if it does not answer.

Without Infisical in the settings, keys come from the environment and `.env`. The embedded defaults need no keys.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from apps.collabiq.files import files_of
from apps.collabiq.records import SYSTEM, DLQEntry, DLQStatus, dlq_id_of
from apps.collabiq.retry_config import INFISICAL_RETRY_CONFIG, breaker_for
from apps.collabiq.settings import Settings
from redrive import CallEvent, ConfigurationError, guard, redact, register_secret

logger = logging.getLogger("collabiq.secrets")

OPERATION: Final = "infisical_fetch"


class _Login(msgspec.Struct):
    access_token: str = msgspec.field(name="accessToken")


class _Secret(msgspec.Struct):
    key: str = msgspec.field(name="secretKey")
    value: str = msgspec.field(name="secretValue")


class _Answer(msgspec.Struct):
    secrets: list[_Secret]


@dataclass(frozen=True, slots=True)
class Secrets:
    """The requested keys, and their origin."""

    values: Mapping[str, str] = field(repr=False)
    origin: str

    def __getitem__(self, name: str) -> str:
        return self.values[name]


def load(settings: Settings) -> Secrets:
    """Return every key that the settings need; each is hidden in all texts from now on.

    Raises:
        ConfigurationError: a key was not found.
    """
    needed = settings.secrets_needed
    if not needed:
        return Secrets({}, "no keys are needed")
    found = Secrets({}, "the environment and .env")
    if settings.infisical_client_id:
        found = guarded_infisical(settings)(settings)
    values = {**_kept(settings), **found.values}
    if missing := [name for name in needed if not values.get(name)]:
        raise ConfigurationError(
            field=", ".join(missing),
            value="<nothing>",
            rule=f"must be set (searched {found.origin})",
            fix="Put it into .env, or into Infisical.",
        )
    for name in needed:
        register_secret(values[name])
    return Secrets({name: values[name] for name in needed}, found.origin)


@functools.cache
def guarded_infisical(settings: Settings) -> Callable[[Settings], Secrets]:
    """Return the guarded `ask_infisical`; always the same function, because a breaker belongs to its guard."""
    return guard(
        ask_infisical,
        retry=INFISICAL_RETRY_CONFIG.to_policy(),
        breaker=breaker_for("infisical"),
        name=OPERATION,
        on_dead=functools.partial(_given_up, settings),
        fallback=_fallback,
    )


def _fallback(error: Exception) -> Secrets:
    """Use the keys from elsewhere in place of Infisical's."""
    text = redact(str(error))
    logger.warning("Infisical did not return the keys; using .env instead: %s", text)
    return Secrets({}, f".env, because Infisical did not return them: {text}")


def _given_up(settings: Settings, event: CallEvent) -> None:
    """Record that Infisical did not answer, and a dead letter for the keys that are missing elsewhere too."""
    log, dlq = files_of(settings)
    record = log.given_up(OPERATION, event)
    kept = _kept(settings)
    if missing := [name for name in settings.secrets_needed if not kept.get(name)]:
        dlq.put(
            DLQEntry(
                dlq_id=dlq_id_of(record.timestamp, SYSTEM),
                email_id=SYSTEM,
                operation_type=OPERATION,
                status=DLQStatus.PENDING,
                original_payload={"names": missing},
                error_details={
                    "error_type": record.error_type,
                    "error_message": record.message,
                    "retry_count": record.retry_count,
                },
                created_at=record.timestamp,
                last_attempt=record.timestamp,
            )
        )


def _kept(settings: Settings) -> dict[str, str]:
    return {**read_env_file(Path(settings.env_file)), **os.environ}


def ask_infisical(settings: Settings) -> Secrets:
    """Log in with a machine identity and read its secrets: two requests, without retries.

    The endpoints are in infisical.com/docs/api-reference: Universal Auth "Login", and Secrets "List".
    """
    import httpx

    with httpx.Client(base_url=settings.infisical_url, timeout=INFISICAL_RETRY_CONFIG.timeout) as client:
        identity = {
            "clientId": settings.infisical_client_id,
            "clientSecret": settings.infisical_client_secret,
        }
        answer = client.post("/api/v1/auth/universal-auth/login", json=identity).raise_for_status()
        token = msgspec.json.decode(answer.content, type=_Login).access_token
        where = {
            "workspaceId": settings.infisical_project,
            "environment": settings.infisical_environment,
            "secretPath": "/",
        }
        bearer = {"Authorization": f"Bearer {token}"}
        answer = client.get("/api/v3/secrets/raw", params=where, headers=bearer).raise_for_status()
    listed = msgspec.json.decode(answer.content, type=_Answer).secrets
    return Secrets({each.key: each.value for each in listed}, "Infisical")


def read_env_file(path: Path) -> dict[str, str]:
    """Return the assignments in a file of lines `NAME=value`; empty when there is no such file."""
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.removeprefix("export ").partition("=")
        if equals and not line.lstrip().startswith("#"):
            found[name.strip()] = value.strip().strip("'\"")
    return found
