# SPDX-License-Identifier: Apache-2.0
"""Get keys from Infisical, once before any mail is read, or from the `.env` file if it does not answer.

Without Infisical in the settings, keys come from the environment and `.env`. The embedded defaults need no keys.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from apps.collabiq.files import RETRY_COUNT, WAITING, files_of, letter_lines
from apps.collabiq.records import KEYS_PIPELINE
from apps.collabiq.retry_config import INFISICAL_RETRY_CONFIG
from apps.collabiq.service_calls import ServiceCall
from apps.collabiq.settings import PREFIX, Settings
from redrive import (
    ConfigurationError,
    Context,
    Pipeline,
    Redrive,
    ReplayRules,
    RetryPolicy,
    redact,
    register_secret,
    stage,
)

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
    problem: Exception | None = None
    """Why Infisical did not return them."""
    retries: int = 0

    def __getitem__(self, name: str) -> str:
        return self.values[name]


class MissingKeys(msgspec.Struct, frozen=True):
    """The payload of the job that stands for keys that were found nowhere."""

    names: list[str]


@stage(name=OPERATION, retry=RetryPolicy(max_attempts=1), idempotent=True)
def infisical_fetch(missing: MissingKeys, found: Secrets, ctx: Context) -> str:
    """Succeed when the keys were found; their retries are over by now."""
    if found.problem is None:
        return f"{', '.join(missing.names)}: {found.origin}"
    ctx.note(RETRY_COUNT, found.retries)
    raise found.problem


def load(rd: Redrive, settings: Settings) -> Secrets:
    """Return every key that the settings need; each is hidden in all texts from now on.

    If Infisical fails and a key is not in `.env` either, there is one dead letter about that, until the keys are found.

    Raises:
        ConfigurationError: a key was not found.
    """
    needed = settings.secrets_needed
    found = Secrets({}, "the environment and .env" if needed else "no keys are needed")
    if needed and settings.infisical_client_id:
        found = _asked(rd, settings)
    values = {**_kept(settings), **found.values} if needed else {}
    missing = [name for name in needed if not values.get(name)]
    _update_letter(rd, settings, missing, found)
    if missing:
        raise ConfigurationError(
            field=", ".join(missing),
            value="<nothing>",
            rule=f"must be set (searched {found.origin})",
            fix="Put it into .env, or into Infisical.",
        )
    for name in needed:
        register_secret(values[name])
    return Secrets({name: values[name] for name in needed}, found.origin)


def _asked(rd: Redrive, settings: Settings) -> Secrets:
    """Return the keys from Infisical; without an answer, keys come from elsewhere."""
    log, _ = files_of(settings)
    call = ServiceCall(rd, log, "infisical", OPERATION)

    def fallback(error: Exception) -> Secrets:
        text = redact(str(error))
        logger.warning("Infisical did not return the keys; using .env instead: %s", text)
        origin = f".env, because Infisical did not return them: {text}"
        return Secrets({}, origin, problem=error, retries=call.retries)

    return call(
        lambda: ask_infisical(settings), INFISICAL_RETRY_CONFIG, fallback=fallback, records_retries=False
    )


def _update_letter(rd: Redrive, settings: Settings, missing: list[str], found: Secrets) -> None:
    """Make a dead letter for keys that Infisical did not return and that are missing, or close it now that none is missing."""
    letters = [line for line in letter_lines(rd) if line.pipeline == KEYS_PIPELINE and line.state in WAITING]
    is_new = bool(missing) and found.problem is not None and not letters
    is_over = bool(letters) and not missing
    if not is_new and not is_over:
        return
    outcome = found if is_new else Secrets({}, found.origin)
    _, dlq = files_of(settings)
    pipeline = Pipeline(
        KEYS_PIPELINE,
        [infisical_fetch],
        resources=[lambda: nullcontext(outcome)],
        sinks=[dlq],
        replay=ReplayRules(evidence="optional"),
    )
    if is_new:
        rd.submit(pipeline, MissingKeys(missing))
    for line in letters:
        rd.jobs.retry(line.job, actor="collabiq", reason="the keys were found")
    rd.work([pipeline], concurrency=1, lease=settings.lease, until_idle=True)


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
    """Return the assignments in a file of lines `NAME=value`; empty when there is no such file.

    Raises:
        ConfigurationError: it cannot be read as UTF-8 text.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(
            field=f"{PREFIX}ENV_FILE",
            value=str(path),
            rule=f"cannot be read: {problem}",
            fix="Save it as UTF-8, readable by this user.",
        ) from None
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.removeprefix("export ").partition("=")
        if equals and not line.lstrip().startswith("#"):
            found[name.strip()] = value.strip().strip("'\"")
    return found
