# SPDX-License-Identifier: Apache-2.0
"""What each client library's errors mean: one small file per library.

No file here imports the library it speaks of. A file is loaded the first time an exception whose class lives in that library is
classified, so a program pays only for the libraries it uses. Each file holds a table `RULES`: class name -> code, or a function
that reads the exception's own attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final, cast

from redrive.core.classify import FoundRule
from redrive.core.failure import Code
from redrive.core.verdict import RuleEntry, RuleFunction, RuleTable, Verdict

LIBRARIES: Final[dict[str, str]] = {
    "aiohttp": "aiohttp",
    "anthropic": "anthropic",
    "asyncpg": "asyncpg",
    "boto3": "botocore",
    "botocore": "botocore",
    "ftplib": "ftp",
    "google.api_core": "google_api_core",
    "google.auth": "google_auth",
    "google.genai": "google_genai",
    "googleapiclient": "googleapiclient",
    "grpc": "grpc",
    "http": "http_client",
    "httpcore": "httpx",
    "httpcore2": "httpx",
    "httplib2": "googleapiclient",
    "httpx": "httpx",
    "httpx2": "httpx",
    "imaplib": "imap_pop",
    "jsonschema": "jsonschema",
    "msgspec": "msgspec",
    "nats": "nats",
    "notion_client": "notion_client",
    "obstore": "obstore",
    "openai": "openai",
    "poplib": "imap_pop",
    "psycopg": "psycopg",
    "psycopg2": "psycopg",
    "psycopg_pool": "psycopg",
    "pydantic": "pydantic",
    "pydantic_core": "pydantic",
    "redis": "redis",
    "redrive": "redrive",
    "referencing": "jsonschema",
    "requests": "requests",
    "s3transfer": "botocore",
    "smtplib": "smtplib",
    "sqlalchemy": "sqlalchemy",
    "sqlite3": "sqlite",
    "urllib": "http_client",
    "urllib3": "urllib3",
}
"""Where an exception class lives (the start of its module's name) -> the file here that knows it."""


def find(kind: type[BaseException]) -> tuple[FoundRule, ...]:
    """Return the built-in rules for an exception type, the most specific class first."""
    found = (_entry(cls) for cls in kind.__mro__)
    return tuple(entry for entry in found if entry is not None)


def _entry(cls: type) -> FoundRule | None:
    library = _library_of(cls.__module__)
    reading = _table(library).get(cls.__name__) if library else None
    return None if reading is None else FoundRule(f"{library}: {cls.__name__}", as_function(reading))


def as_function(reading: RuleEntry) -> RuleFunction:
    """Return a table entry as a function."""
    return _always(reading) if isinstance(reading, Code) else reading


def _always(code: Code) -> Callable[[BaseException, float], Verdict]:
    verdict = Verdict(code=code)
    return lambda _exc, _now: verdict


def _library_of(module: object) -> str | None:
    """Return the file that knows classes of this module; a user's own class may share a name with anything, so it has none."""
    if not isinstance(module, str):
        return None  # as of a class made by hand, by type() or by a C extension
    first, _, rest = module.partition(".")
    known = LIBRARIES.get(first) or LIBRARIES.get(f"{first}.{rest.partition('.')[0]}")
    return known or ("stdlib" if first in sys.stdlib_module_names else None)


@cache
def _table(library: str) -> RuleTable:
    return cast("RuleTable", import_module(f"redrive.rules.{library}").RULES)
