# SPDX-License-Identifier: Apache-2.0
"""The targets: functions of bytes that must return, or raise an error of redrive's, and that soon."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path

from redrive import Pipeline, RetryPolicy, classify, connect, redact, stage
from redrive.cli.input.files import decode_json
from redrive.config import database_url
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import RedriveError
from redrive.ops.audit import Actor
from redrive.ops.letters.edit import edit
from redrive.ops.letters.exports import export
from redrive.ops.letters.imports import import_letters
from redrive.redaction.process import redact_mapping

FUZZER = Actor("fuzzer", "a test")


@stage(retry=RetryPolicy(1))
def fail(value: object) -> object:
    raise KeyError(value)


FLOW = Pipeline("fuzzed", [fail])


class StrangeError(Exception):
    """An error with whatever attributes a client library may give it."""


def classify_target(given: bytes) -> None:
    text = given.decode("utf-8", "surrogateescape")
    exc = StrangeError(text)
    for name in ("status_code", "code", "response", "headers", "body", "errno"):
        vars(exc)[name] = text if len(given) % 2 else given
    for each in (exc, OSError(len(given), text), ExceptionGroup(text or "x", [exc, ValueError(text)])):
        failure = classify(each)
        assert failure.code
        assert failure.category


def redact_target(given: bytes) -> None:
    text = given.decode("utf-8", "replace")
    once = redact(text)
    assert redact(once) == once
    with suppress(ValueError, RecursionError):
        redact_mapping(json.loads(given))


def json_target(given: bytes) -> None:
    for text in (given, given.decode("utf-8", "replace")):
        with suppress(RedriveError):
            decode_json(text, "a line")


def import_target(given: bytes) -> None:
    with connect(":memory:") as rd:
        import_letters(rd.store, given.split(b"\n"), FUZZER)


def edit_target(given: bytes) -> None:
    with connect(":memory:") as rd:
        rd.submit(FLOW, {"a": [1, {"b": "text"}]})
        rd.work([FLOW], until_idle=True)
        for how in ("value", "patch"):
            with suppress(RedriveError):
                edit(rd.store, 1, FUZZER, part="payload", **{how: given})  # type: ignore[arg-type]


def toml_target(given: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name in ("redrive.toml", "pyproject.toml"):
            Path(name).write_bytes(given)
        with suppress(RedriveError):
            address = database_url()
            assert address is None or address.strip()


def exported_line() -> bytes:
    """Return a line of an export, for the fuzzer to change."""
    with connect(":memory:") as rd:
        rd.submit(FLOW, "text")
        rd.work([FLOW], until_idle=True)
        return next(iter(export(rd.store, LetterFilter())))


TARGETS: dict[str, tuple[Callable[[bytes], None], tuple[bytes, ...]]] = {
    "classify": (classify_target, (b"429 Too Many Requests", b"Retry-After: 5")),
    "redact": (redact_target, (b"password=hunter2hunter2", b"<redacted:email>", b'{"token": "abc"}')),
    "json": (json_target, (b'{"a": [1, 2.5e300, null]}', b"[" * 300)),
    "import": (import_target, ()),
    "edit": (edit_target, (b'[{"op": "copy", "from": "/a", "path": "/b"}]', b'{"a": 1}')),
    "toml": (toml_target, (b'database_url = "jobs.db"\n', b"[tool.redrive]\n", b"a = " + b"[" * 3_000)),
}
"""Each target with seeds that its inputs are made of."""
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
