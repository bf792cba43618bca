# SPDX-License-Identifier: Apache-2.0
"""The new value of an edit, made from the present one: checked JSON, by a JSON Patch or by a function.

Pure but for the function, which is the caller's. Messages never quote a value.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Final, Literal, cast

import jsonpatch
import msgspec
from jsonpointer import JsonPointerException, resolve_pointer

from redrive.engine.pipeline.codec import codec_for, storable
from redrive.engine.pipeline.submission import PAYLOAD_MAX, check_size
from redrive.engine.worker.dead_letter import MESSAGE_MAX, literals_in
from redrive.errors import ConfigurationError, SerializationError
from redrive.ops.letters.document import deeper
from redrive.redaction.process import redact

EditFunction = Callable[[object], object]
"""Takes a value as plain JSON (dict, list, str, ...) and returns the new one."""
NEW: Final = "the new value"
FLATTER: Final = "make it flatter, or keep the deep part as a text"
_DOCUMENT: Final = re.compile(r" in [\[{\"']| of [\[{]")
_WHOLE: Final = "the value is nested too deep for a patch; give the whole value instead"
_TEST_FAILED: Final = "one of its tests fails: the value there is different"
_ANY: Final = codec_for(NEW, None)
OPERATIONS_MAX: Final = 1_000
"""Operations of a patch: each may read the whole value."""


class _Operation(msgspec.Struct, frozen=True, kw_only=True):
    """The form of one operation of a JSON Patch; the library applies it."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: str
    source: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="from")


def checked_patch(patch: bytes) -> object:
    """Return the operations of a JSON Patch; refuse what has not the form of one."""
    try:
        msgspec.json.decode(compact("the patch", patch), type=list[_Operation])
    except msgspec.ValidationError as error:
        raise _bad_patch(str(error)) from None
    return msgspec.json.decode(patch)


def patched(before: bytes, patch: bytes) -> bytes:
    """Return a value with a JSON Patch applied to it, whole or not at all."""
    operations = checked_patch(patch)
    document: object = msgspec.json.decode(before)
    try:
        # The first operation on a copy, as the library does it: what is too deep for that is too deep for others.
        after = _applied(copy.deepcopy(document), cast("list[dict[str, object]]", operations))
    except jsonpatch.JsonPatchTestFailed:
        # The message quotes the value, which must stay hidden.
        raise _bad_patch(_TEST_FAILED) from None
    except RecursionError:
        raise _bad_patch(_WHOLE) from None
    except (jsonpatch.JsonPatchException, JsonPointerException) as error:
        # Some messages end with the whole document: "member 'x' not found in {...".
        raise _bad_patch(_DOCUMENT.split(str(error))[0][:MESSAGE_MAX]) from None
    made = msgspec.json.encode(after)
    check_size(NEW, made)
    return made


def _applied(document: object, operations: list[dict[str, object]]) -> object:
    """Apply operations one by one, so that a few copies of copies cannot make a value that nobody could store."""
    if len(operations) > OPERATIONS_MAX:
        many = f"it has {len(operations):,} operations; {OPERATIONS_MAX:,} is the most"
        raise _bad_patch(many)
    copied = 0
    for operation in operations:
        if operation["op"] == "copy":
            copied += len(msgspec.json.encode(resolve_pointer(document, str(operation["from"]), None)))
            if copied > PAYLOAD_MAX:
                much = f"it copies more than {PAYLOAD_MAX:,} bytes"
                raise _bad_patch(much)
        document = jsonpatch.apply_patch(document, [operation], in_place=True)
    return document


def called(function: EditFunction, before: bytes) -> bytes:
    """Return what a function makes of a value; refuse one that raises, returns nothing, or returns what is not JSON."""
    try:
        after = function(msgspec.json.decode(before))
    except Exception as error:
        # The message often quotes the value, which must stay hidden.
        problem = redact(storable(f"{type(error).__name__}: {error}"), payload=literals_in(before))
        raise _bad_function(problem[:MESSAGE_MAX]) from error
    if after is None:
        # Most likely it changed its argument and forgot to return it.
        raise _bad_function(None)
    made = _ANY.encode(after)
    check_size(NEW, made)
    return made


def _bad_function(got: str | None) -> ConfigurationError:
    return ConfigurationError(
        field="function",
        value=got,
        rule="must return the new value",
        fix="It takes the value as plain JSON, and returns the whole of the new one, which is not null.",
    )


def _bad_patch(problem: str) -> ConfigurationError:
    return ConfigurationError(
        field="patch",
        value=redact(storable(problem)),
        rule="cannot be applied",
        fix='A list of operations, as RFC 6902 has them: [{"op": "replace", "path": "/amount", "value": 5}].',
    )


def compact(what: str, encoded: bytes) -> bytes:
    """Return JSON without blanks; raises SerializationError, also for what is too large to be stored."""
    check_size(what, encoded)
    try:
        msgspec.json.decode(encoded)
        return msgspec.json.format(encoded, indent=-1)
    except RecursionError:
        raise bad_json(what, f"{deeper(encoded)}: {FLATTER}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_json(what, str(error)) from None


def bad_json(what: str, problem: str) -> SerializationError:
    """Return the error about what is not JSON, or not JSON that a stage would accept."""
    return SerializationError(where=what, kind="JSON", problem=problem)
