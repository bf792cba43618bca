# SPDX-License-Identifier: Apache-2.0
"""Where keys come from: Infisical, asked once before any mail is read, and the `.env` file when it does not answer.

Without Infisical in the settings, keys come from the environment and `.env`. The embedded defaults need none at all.
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

from apps.collabiq.codes import CLASSES
from apps.collabiq.files import REFUSED, files_of, present
from apps.collabiq.records import SYSTEM, DLQEntry, DLQStatus, dlq_id_of
from apps.collabiq.retry_config import INFISICAL_RETRY_CONFIG, breaker_for
from apps.collabiq.settings import Settings
from redrive import BreakerOpenError, ConfigurationError, guard, redact, register_secret
from redrive.core.classify import class_name

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
    """The keys that were asked for, and where they came from."""

    values: Mapping[str, str] = field(repr=False)
    origin: str

    def __getitem__(self, name: str) -> str:
        return self.values[name]


def load(settings: Settings) -> Secrets:
    """Return every key that the settings ask for; each is hidden in all texts from now on.

    Raises:
        ConfigurationError: a key is nowhere.
    """
    needed = settings.secrets_needed
    if not needed:
        return Secrets({}, "none are needed")
    kept = {**read_env_file(Path(settings.env_file)), **os.environ}
    if not settings.infisical_client_id:
        return _checked(kept, needed, "the environment and .env")
    try:
        found = asking_of(settings)(settings)
    except _failures() as error:
        told = redact(str(error))
        logger.warning("Infisical did not give the keys, .env is used instead: %s", told)
        missing = [name for name in needed if not kept.get(name)]
        if missing:
            files_of(settings)[1].put(_entry(missing, error), delivery=f"{SYSTEM}-{present().isoformat()}")
        return _checked(kept, needed, f".env, because Infisical did not give them: {told}")
    return _checked({**kept, **found}, needed, "Infisical")


def ask_infisical(settings: Settings) -> dict[str, str]:
    """Log in with a machine identity and read its secrets: two requests, each made once.

    The endpoints are those of infisical.com/docs/api-reference: Universal Auth "Login", and Secrets "List".
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
    return {each.key: each.value for each in msgspec.json.decode(answer.content, type=_Answer).secrets}


def read_env_file(path: Path) -> dict[str, str]:
    """Return the assignments in a file of lines `NAME=value`; nothing when there is no such file."""
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.removeprefix("export ").partition("=")
        if equals and not line.lstrip().startswith("#"):
            found[name.strip()] = value.strip().strip("'\"")
    return found


@functools.cache
def asking_of(settings: Settings) -> Callable[[Settings], dict[str, str]]:
    """Return `ask_infisical` under its policy and breaker; the same function every time, because a breaker lives with its guard."""
    log, _ = files_of(settings)
    asking = guard(
        retry=INFISICAL_RETRY_CONFIG.to_policy(),
        breaker=breaker_for("infisical"),
        codes=CLASSES,
        name=OPERATION,
        on_dead=functools.partial(log.gave_up, OPERATION),
    )
    return asking(ask_infisical)


def _failures() -> tuple[type[Exception], ...]:
    import httpx

    return (httpx.HTTPError, httpx.InvalidURL, BreakerOpenError, msgspec.MsgspecError)


def _checked(kept: Mapping[str, str], needed: tuple[str, ...], origin: str) -> Secrets:
    missing = [name for name in needed if not kept.get(name)]
    if missing:
        raise ConfigurationError(
            field=", ".join(missing),
            value="<nothing>",
            rule=f"must be set (looked in {origin})",
            fix="Put it into .env, or into Infisical.",
        )
    values = {name: kept[name] for name in needed}
    for value in values.values():
        register_secret(value)
    return Secrets(values, origin)


def _entry(missing: list[str], error: Exception) -> DLQEntry:
    now = present()
    return DLQEntry(
        dlq_id=dlq_id_of(now, SYSTEM),
        email_id=SYSTEM,
        operation_type=OPERATION,
        status=DLQStatus.PENDING,
        original_payload={"names": missing},
        error_details={
            "error_type": REFUSED if isinstance(error, BreakerOpenError) else class_name(type(error)),
            "error_message": str(error),
            "retry_count": INFISICAL_RETRY_CONFIG.max_attempts - 1,
        },
        created_at=now,
        last_attempt=now,
    )
