# SPDX-License-Identifier: Apache-2.0
"""FetchBox's settings: limits and addresses from the environment, job types, proxy pools and tenants from a TOML file.

Everything is checked when a process starts: pools that refer to unknown pools or to each other in a circle, types with unknown
pools. The defaults work without a network, a broker or a file.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from apps.database import database_of
from redrive import ConfigurationError, register_secret

PREFIX: Final = "FETCHBOX_"
SECRET_MIN: Final = 8


class Limits(Struct, frozen=True):
    """What a manifest may hold."""

    body_max: int = 5_000_000
    """Bytes, after decompression."""
    resources_max: int = 1_000
    id_max: int = 128
    headers_max: int = 10
    tags_max: int = 10
    value_max: int = 1_024
    url_max: int = 8_192


class JobType(Struct, frozen=True, forbid_unknown_fields=True):
    """What a kind of job uses."""

    handler: str = "default"
    pool: str = ""
    """Empty: direct connections."""
    bucket: str = ""
    """The URL of an object store; empty for the one of the settings."""
    headers: dict[str, str] = {}


class Pool(Struct, frozen=True, forbid_unknown_fields=True):
    """Proxies in tiers: all of the first tier are used before the second; then those of the fallback."""

    tiers: list[list[str]]
    fallback: str = ""


class Tenant(Struct, frozen=True, forbid_unknown_fields=True):
    """Who may post: the name of the variable with the tenant's token, and the job types it may use (empty: all)."""

    token_env: str
    types: list[str] = []


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    types: dict[str, JobType] = {}
    pools: dict[str, Pool] = {}
    tenants: dict[str, Tenant] = {}

    def checked(self) -> Self:
        """Return it, or refuse unknown pools and circles."""
        for name, pool in self.pools.items():
            if not any(pool.tiers) or any(not _is_proxy(url) for tier in pool.tiers for url in tier):
                raise _refused(
                    name=f"pools.{name}.tiers", value="<not shown>", rule="must hold URLs of http proxies"
                )
            _follow(self.pools, name)
        for name, kind in self.types.items():
            if kind.pool and kind.pool not in self.pools:
                raise _unknown(name=f"types.{name}.pool", value=kind.pool, known=self.pools)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Addresses, limits and policies of one installation."""

    folder: str = "data/fetchbox"
    """Of the database, the spool, and by default the objects."""
    config: str = ""
    """The TOML file with types, pools and tenants."""
    storage_url: str = ""
    """s3://bucket, gs://bucket, az://container or file:///folder; empty for a folder of its own. The libraries' own variables,
    such as AWS_ACCESS_KEY_ID, hold the credentials."""
    storage_http: bool = False
    """Whether an object store may be reached by http, such as an emulator."""
    nats_url: str = field(default="", repr=False)
    """Empty: dead letters are files in the folder instead."""
    download_retry_limit: int = 5
    storage_retry_limit: int = 3
    backoff_seconds: float = 1.0
    """The first delay between two attempts; it doubles up to a minute."""
    object_max: int = 1_000_000_000
    timeout_seconds: float = 30.0
    """For a connection, and for each read."""
    allow_private: bool = False
    """Whether private and link-local addresses may be fetched directly."""
    concurrency: int = 64
    origin_concurrency: int = 32
    """Downloads from one origin at once, so that a slow one does not take every slot."""
    tenant_concurrency: int = 48
    breaker_min_calls: int = 20
    """From so many calls in a minute on, an origin of which half fail is left alone for half a minute; its tasks wait."""
    lease: float = 30.0
    keep_tasks_days: float = 7.0
    keep_snapshots_days: float = 30.0
    keep_letters_days: float = 90.0
    body_max: int = 5_000_000
    resources_max: int = 1_000
    id_max: int = 128
    headers_max: int = 10
    tags_max: int = 10
    value_max: int = 1_024

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the settings of an environment, `FETCHBOX_FOLDER` and so on; raises ConfigurationError."""
        names = {PREFIX + each.name.upper(): each.name for each in fields(cls)}
        for variable in environment:
            if variable.startswith(PREFIX) and variable not in names:
                raise _unknown(name=variable, value="<not shown>", known=names)
        given = {name: environment[variable] for variable, name in names.items() if environment.get(variable)}
        try:
            return msgspec.convert(given, cls, strict=False)
        except msgspec.ValidationError as error:
            raise _refused(name="settings", value="<not shown>", rule=str(error)) from None

    @property
    def root(self) -> Path:
        """The folder."""
        return Path(self.folder)

    @property
    def database(self) -> Path | str:
        """The database of redrive."""
        return database_of(self.root / "fetchbox.db")

    @property
    def storage(self) -> str:
        """The URL of the object store."""
        return self.storage_url or (self.root / "objects").absolute().as_uri()

    @property
    def limits(self) -> Limits:
        """What a manifest may hold."""
        return Limits(
            body_max=self.body_max,
            resources_max=self.resources_max,
            id_max=self.id_max,
            headers_max=self.headers_max,
            tags_max=self.tags_max,
            value_max=self.value_max,
        )

    def load_config(self) -> Config:
        """Return types, pools and tenants, checked; without a file, one type `default`. Raises ConfigurationError."""
        if not self.config:
            return Config(types={"default": JobType()})
        try:
            found = tomllib.loads(Path(self.config).read_text(encoding="utf-8"))
            config = msgspec.convert(found, Config)
        except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise _refused(name=f"{PREFIX}CONFIG", value=self.config, rule=str(error)) from None
        return config.checked()


def tokens_of(config: Config, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the tenants by token; each token is hidden everywhere. Raises ConfigurationError for one that is not set."""
    found: dict[str, str] = {}
    for name, tenant in config.tenants.items():
        token = environment.get(tenant.token_env, "")
        if len(token) < SECRET_MIN:
            rule = f"must name a variable of {SECRET_MIN} characters or more"
            raise _refused(name=f"tenants.{name}.token_env", value=tenant.token_env, rule=rule)
        register_secret(token)
        found[token] = name
    return found


def _follow(pools: Mapping[str, Pool], start: str) -> None:
    """Refuse a pool whose fallbacks are unknown or lead back to it."""
    way = [start]
    while name := pools[way[-1]].fallback:
        if name not in pools:
            raise _unknown(name=f"pools.{way[-1]}.fallback", value=name, known=pools)
        if name in way:
            raise _refused(
                name=f"pools.{start}.fallback",
                value=" -> ".join([*way, name]),
                rule="must not lead in a circle",
            )
        way.append(name)


def _is_proxy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return False


def _unknown(*, name: str, value: str, known: Mapping[str, object]) -> ConfigurationError:
    near = difflib.get_close_matches(name if value.startswith("<") else value, list(known), n=1)
    fix = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known) or 'none'}."
    return ConfigurationError(field=name, value=value, rule="is not known", fix=fix)


def _refused(*, name: str, value: str, rule: str) -> ConfigurationError:
    return ConfigurationError(field=name, value=value, rule=rule, fix="README.md has examples.")
