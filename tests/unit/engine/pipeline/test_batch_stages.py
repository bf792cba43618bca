# SPDX-License-Identifier: Apache-2.0
"""Declaring a batch stage: its element types, its contexts, and what it cannot be combined with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from redrive import Batch, ConfigurationError, Context, Fail, stage
from redrive.engine.pipeline.stage import Stage
from redrive.errors import BatchResultError

TWO = Batch(size=2)


def made(function: Callable[..., object], **options: Any) -> Stage[..., object]:
    return stage(batch=TWO, **options)(function)


def plain(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


def with_exceptions(texts: list[str]) -> list[int | Exception]:
    return [len(text) for text in texts]


def with_signals(texts: Sequence[str]) -> Sequence[int | Fail | ValueError]:
    return [len(text) for text in texts]


@pytest.mark.parametrize("function", [plain, with_exceptions, with_signals])
def test_input_and_output_are_the_elements_and_exceptions_are_no_part_of_them(
    function: Callable[..., object],
) -> None:
    one = made(function)

    assert (one.input.kind, one.output.kind) == (str, int)


def test_a_union_keeps_its_other_members() -> None:
    def mixed(texts: list[str | None]) -> list[int | str | Exception]:
        return []

    assert made(mixed).output.kind == int | str
    assert made(mixed).input.kind == str | None


def test_without_element_types_any_json_is_taken() -> None:
    def bare(values: list) -> list:  # type: ignore[type-arg]
        return values

    def failing(values: list[object]) -> list[Exception]:
        return [ValueError()]

    def only_kinds(values: list[int]) -> list[ValueError | Fail]:
        return [ValueError()]

    assert made(bare).input.kind is None
    assert made(bare).output.kind is None
    assert made(failing).output.kind is None
    assert made(only_kinds).output.kind is None


def test_it_stays_callable_as_the_function_it_was() -> None:
    assert made(plain)(["a", "bc"]) == [1, 2]


def test_its_contexts_are_a_list() -> None:
    def noted(texts: list[str], contexts: list[Context]) -> list[str]:
        return texts

    def alone(texts: list[str], ctx: Context) -> list[str]:
        return texts

    assert made(noted).context_name == "contexts"
    with pytest.raises(ConfigurationError, match=r"list\[Context\]"):
        made(alone)


def not_a_list(text: str) -> list[str]:
    return [text]


def not_lists(texts: list[str]) -> str:
    return texts[0]


@pytest.mark.parametrize(("function", "verb"), [(not_a_list, "take"), (not_lists, "return")])
def test_a_function_of_one_item_is_refused(function: Callable[..., object], verb: str) -> None:
    with pytest.raises(ConfigurationError, match=f"must {verb} a list"):
        made(function)


@pytest.mark.parametrize(
    "options", [{"process": True}, {"on_overrun": "abandon", "timeout": 1, "idempotent": True}]
)
def test_it_runs_neither_in_a_process_nor_abandoned(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="cannot be combined"):
        made(plain, **options)


def test_anything_but_a_batch_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be a Batch"):
        stage(batch=64)(plain)  # type: ignore[call-overload]


def test_a_batch_is_part_of_the_settings_of_its_stage_and_absent_from_those_of_others() -> None:
    def one(text: str) -> int:
        return len(text)

    assert made(plain).config != stage(batch=Batch(size=3))(plain).config
    assert stage(one).batch is None


@pytest.mark.parametrize(
    ("returned", "text"),
    [(3, "returned 3 results for 4 inputs"), ("dict", "returned dict, not a list, for 4 inputs")],
)
def test_the_error_about_results_names_both_counts(returned: int | str, text: str) -> None:
    assert text in str(BatchResultError(stage="embed", inputs=4, returned=returned))
