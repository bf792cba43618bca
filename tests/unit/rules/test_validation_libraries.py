# SPDX-License-Identifier: Apache-2.0
"""Validation libraries: content that does not fit, as opposed to a model or schema that makes no sense."""

from __future__ import annotations

from collections.abc import Callable

import jsonschema
import msgspec
import pydantic
import pytest
import referencing
import referencing.exceptions

from tests.wire_store.catching import failure_of


class Model(pydantic.BaseModel):
    number: int


class Struct(msgspec.Struct):
    number: int


@pytest.mark.req("CR-1.5")
@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda: Model.model_validate({"number": "x"}), id="pydantic: wrong type"),
        pytest.param(lambda: Model.model_validate({}), id="pydantic: missing field"),
        pytest.param(lambda: Model.model_validate_json("{"), id="pydantic: no json"),
        pytest.param(lambda: msgspec.json.decode(b'{"number": "x"}', type=Struct), id="msgspec: wrong type"),
        pytest.param(lambda: msgspec.json.decode(b"{}", type=Struct), id="msgspec: missing field"),
        pytest.param(lambda: msgspec.json.decode(b"{"), id="msgspec: no json"),
        pytest.param(lambda: msgspec.convert({"number": "x"}, Struct), id="msgspec: convert"),
        pytest.param(lambda: jsonschema.validate("x", {"type": "integer"}), id="jsonschema: wrong type"),
        pytest.param(
            lambda: jsonschema.validate({}, {"required": ["number"]}), id="jsonschema: missing field"
        ),
    ],
)
def test_content_that_does_not_fit_is_not_retried(read: Callable[[], object]) -> None:
    failure = failure_of(read)

    assert (failure.code, failure.category, failure.retryable) == ("SCHEMA_INVALID", "validation", False)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        pytest.param(
            lambda: jsonschema.validate("x", {"type": "nothing known"}), "CONFIG_INVALID", id="broken schema"
        ),
        pytest.param(
            lambda: jsonschema.validate("x", {"$ref": "#/nowhere"}), "CONFIG_INVALID", id="broken reference"
        ),
        pytest.param(lambda: referencing.Registry()["urn:nowhere"], "CONFIG_INVALID", id="unknown resource"),
        pytest.param(lambda: msgspec.json.encode(object()), "BUG_CODE", id="msgspec: cannot be written"),
        pytest.param(lambda: pydantic.TypeAdapter(object()), "BUG_CODE", id="pydantic: no type"),  # type: ignore[arg-type]
        pytest.param(
            lambda: pydantic.TypeAdapter(object).dump_json(object()),
            "BUG_CODE",
            id="pydantic: cannot be written",
        ),
    ],
)
def test_models_and_schemas_that_make_no_sense_are_the_programs_doing(
    call: Callable[[], object], code: str
) -> None:
    failure = failure_of(call)

    assert (failure.code, failure.category, failure.retryable) == (code, "bug", False)


def test_a_reference_that_could_not_be_fetched_is_as_the_network_was() -> None:
    def fetch(_uri: str) -> referencing.Resource[object]:
        raise ConnectionRefusedError(111, "Connection refused")

    registry: referencing.Registry[object] = referencing.Registry(retrieve=fetch)  # type: ignore[call-arg]  # an alias its types hide

    failure = failure_of(registry.get_or_retrieve, "http://schemas.invalid/a")

    assert (failure.code, failure.retryable) == ("NETWORK_REFUSED", True)
