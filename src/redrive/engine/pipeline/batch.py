# SPDX-License-Identifier: Apache-2.0
"""The function of a batch stage: the types of its elements, what it is called with, and its results, one for each input.

Nothing here decides what becomes of a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import TYPE_CHECKING, Final, Union, cast, get_args, get_origin

from redrive.core.signals import Signal
from redrive.errors import BatchResultError, ConfigurationError

if TYPE_CHECKING:
    from redrive.engine.pipeline.context import Context
    from redrive.engine.pipeline.stage import Stage

_LISTS: Final[tuple[object, ...]] = (list, Sequence)


def input_element(name: str, hint: object) -> object:
    """Return the type of one input of a batch function; None, for any JSON, when the annotation does not say."""
    return _element(name, hint, "take")


def output_element(name: str, hint: object) -> object:
    """Return the type of one output of a batch function; exceptions and signals beside it are no part of it."""
    element = _element(name, hint, "return")
    if get_origin(element) not in {Union, UnionType}:
        return None if _is_exception(element) else element
    outputs = tuple(each for each in get_args(element) if not _is_exception(each))
    return Union[outputs] if outputs else None  # noqa: UP007 - its members are known only now.


def _element(name: str, hint: object, verb: str) -> object:
    if hint is None or hint is object or any(hint is each for each in _LISTS):
        return None
    if get_origin(hint) in _LISTS:
        return cast("object", get_args(hint)[0])
    raise ConfigurationError(
        field=f"stage({name})",
        value=hint,
        rule=f"has batch=, so it must {verb} a list",
        fix="async def embed(texts: list[str]) -> list[Vector | Exception], for example.",
    )


def _is_exception(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseException)


def arguments_for(
    stage: Stage[..., object], resources: dict[str, object], contexts: Sequence[Context]
) -> dict[str, object]:
    """Return what a batch function gets besides its inputs."""
    return resources if stage.context_name is None else {**resources, stage.context_name: list(contexts)}


def results_of(stage: Stage[..., object], returned: object, inputs: int) -> Sequence[object]:
    """Return what a batch function returned, one result for each input.

    Raises:
        Signal: it returned one signal instead of a list, for all of them.
        BatchResultError: it returned too few or too many results, or no list.
    """
    if isinstance(returned, Signal):
        raise returned
    if not isinstance(returned, list | tuple):
        raise BatchResultError(stage=stage.name, inputs=inputs, returned=type(returned).__name__)
    results = cast("Sequence[object]", returned)
    if len(results) != inputs:
        raise BatchResultError(stage=stage.name, inputs=inputs, returned=len(results))
    return results
