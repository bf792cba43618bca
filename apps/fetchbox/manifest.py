# SPDX-License-Identifier: Apache-2.0
"""What a client posts: a manifest of resources, checked whole before anything is stored; and the tasks that are made of it.

`metadata` and `attributes` are the client's own and are kept as they came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from apps.fetchbox.codes import CODES
from apps.fetchbox.settings import Limits
from redrive.web import Problem, ProblemError

VERSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_MISSING: Final = re.compile(r"missing required field `([^`]+)`")
_PLACE: Final = re.compile(r" - at `\$\.?([^`]*)`")
_DIGEST: Final = "^[0-9a-f]{64}$"
HOP_HEADERS: Final = frozenset(
    "connection content-length host keep-alive proxy-authorization trailer transfer-encoding upgrade range if-range".split()
)
"""Headers that belong to the connection, or that FetchBox sets itself."""


class Resource(Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to fetch."""

    id: str
    url: str
    headers: dict[str, str] = {}
    tags: dict[str, str] = {}
    sha256: Annotated[str, Meta(pattern=_DIGEST)] | None = None
    """The expected digest; a resource that has another one is refused."""


class Storage(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the objects go in the bucket of the job type."""

    prefix: str = ""


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /jobs`."""

    version: int
    resources: list[Resource]
    type: str = "default"
    storage: Storage = Storage()
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])


class Task(Struct, frozen=True):
    """The payload of a job of redrive: one resource of a FetchBox job."""

    job_id: str
    task_id: str
    tenant: str
    type: str
    url: str
    key: str
    """The place of the object in the bucket."""
    headers: dict[str, str] = {}
    tags: dict[str, str] = {}
    sha256: str | None = None
    trace_id: str = ""


NO_TASK: Final = Task(job_id="", task_id="", tenant="", type="", url="", key="")
"""Of a job whose values were erased."""


def problem(status: int, code: str, detail: str, **members: object) -> ProblemError:
    """Return the answer with a code of FetchBox."""
    line = CODES[code].line or code
    return ProblemError(Problem(status, code, line, detail, members))


def parse(body: bytes, limits: Limits) -> Manifest:
    """Return a manifest that keeps every rule, or raise the problem of the first one it breaks."""
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except msgspec.ValidationError as error:
        text = str(error)
        missing, place = _MISSING.search(text), _PLACE.search(text)
        where = f"{place[1]}." if place and place[1] else ""
        if missing:
            name = f"{where}{missing[1]}"
            raise problem(422, "VALIDATION_MISSING_FIELD", f"{name} is missing", field=name) from None
        raise problem(422, "VALIDATION_INVALID_FIELD", text, field=where.rstrip(".")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise problem(400, "VALIDATION_INVALID_JSON", str(error)) from None
    _check(manifest, limits)
    return manifest


def _check(manifest: Manifest, limits: Limits) -> None:
    if manifest.version != VERSION:
        raise _wrong(name="version", rule=f"must be {VERSION}")
    prefix = manifest.storage.prefix
    if not _is_path(prefix) or len(prefix) > limits.value_max:
        raise _wrong(name="storage.prefix", rule="must be a relative path without . and ..")
    count = len(manifest.resources)
    if not count:
        raise _wrong(name="resources", rule="must hold at least one resource")
    if count > limits.resources_max:
        raise problem(422, "VALIDATION_TOO_LARGE", f"{count} resources; {limits.resources_max} is the most")
    seen: set[str] = set()
    for place, each in enumerate(manifest.resources):
        where = f"resources[{place}]"
        _check_resource(where, each, limits)
        if each.id in seen:
            raise problem(422, "VALIDATION_DUPLICATE_ID", f"{where}.id occurs twice", field=f"{where}.id")
        seen.add(each.id)


def _check_resource(where: str, each: Resource, limits: Limits) -> None:
    if not each.id or not each.id.isprintable() or len(each.id) > limits.id_max:
        raise _wrong(name=f"{where}.id", rule=f"must be a text of 1 to {limits.id_max} printable characters")
    if (wrong := url_problem(each.url, limits.url_max)) is not None:
        raise problem(422, "VALIDATION_INVALID_URL", f"{where}.url {wrong}", field=f"{where}.url")
    for name, values, most in (
        ("headers", each.headers, limits.headers_max),
        ("tags", each.tags, limits.tags_max),
    ):
        if len(values) > most:
            raise problem(
                422, "VALIDATION_TOO_LARGE", f"{where}.{name}: {most} are the most", field=f"{where}.{name}"
            )
        if any(len(text.encode()) > limits.value_max for pair in values.items() for text in pair):
            detail = f"{where}.{name}: {limits.value_max} bytes are the most for a name or a value"
            raise problem(422, "VALIDATION_TOO_LARGE", detail, field=f"{where}.{name}")
    if (bad := bad_header(each.headers)) is not None:
        raise _wrong(name=f"{where}.headers", rule=f"{bad!r} is not allowed as a header")


def bad_header(headers: Mapping[str, str]) -> str | None:
    """Return the name of a header that cannot be sent, or that FetchBox sets itself; None if all are good."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in HOP_HEADERS:
            return name
    return None


def url_problem(url: str, most: int) -> str | None:
    """Return what is wrong with a URL, without quoting it; None if it can be fetched."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not url.isprintable() or " " in url:
        return "must be an http or https URL"
    return f"is longer than {most} characters" if len(url) > most else None


def _is_path(text: str) -> bool:
    parts = text.split("/")
    return (
        text.isprintable() and not text.startswith("/") and not {".", ".."} & set(parts) and "//" not in text
    )


def _wrong(*, name: str, rule: str) -> ProblemError:
    return problem(422, "VALIDATION_INVALID_FIELD", f"{name} {rule}", field=name)
