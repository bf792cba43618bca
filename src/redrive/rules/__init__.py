# SPDX-License-Identifier: Apache-2.0
"""Rules for the errors of each client library: one small file per library.

No file imports its library. A file is loaded when an exception of its library is classified for the first time, so a program
pays only for the libraries it uses. Each file has a table `RULES`: class name -> code, or a function that reads the exception's
attributes.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Final, cast

from redrive.core.classify import FoundRule
from redrive.core.failure import Code
from redrive.core.verdict import RuleFunction, RuleTable, Verdict

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
"""The start of an exception class's module name -> the file with its rules."""


def find(kind: type[BaseException]) -> tuple[FoundRule, ...]:
    """Return the built-in rules for an exception type, the most specific class first."""
    return tuple(rule for rule in map(_rule_for, kind.__mro__) if rule is not None)


def _rule_for(cls: type) -> FoundRule | None:
    library = _library_of(cls.__module__)
    entry = _table(library).get(cls.__name__) if library else None
    if entry is None:
        return None
    return FoundRule(f"{library}: {cls.__name__}", _always(entry) if isinstance(entry, Code) else entry)


def _always(code: Code) -> RuleFunction:
    verdict = Verdict(code=code)
    return lambda _exc, _now: verdict


def _library_of(module: object) -> str | None:
    """Return the file with the rules for this module; None for a user's own module, whose class names may equal any library's."""
    if not isinstance(module, str):
        return None  # A class made by type() or by a C extension may have no module name.
    first, _, rest = module.partition(".")
    known = LIBRARIES.get(first) or LIBRARIES.get(f"{first}.{rest.partition('.')[0]}")
    return known or ("stdlib" if first in sys.stdlib_module_names else None)


@cache
def _table(library: str) -> RuleTable:
    return cast("RuleTable", import_module(f"redrive.rules.{library}").RULES)
