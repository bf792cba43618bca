# SPDX-License-Identifier: Apache-2.0
"""The filter over dead letters as people give it: made of arguments or options, checked, and written as options again.

The filter itself is in `engine.replay.filter`; what it matches is found, and frozen, in `freeze`.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from redrive.core.arguments import one_of
from redrive.core.failure import Category
from redrive.core.taxonomy import CODES
from redrive.core.units import iso_text
from redrive.engine.replay.filter import STATES, LetterFilter
from redrive.engine.runs.runs import Runs
from redrive.errors import ConfigurationError
from redrive.ops.letters.groups import known_codes, resolve_group
from redrive.ops.pipelines import known_pipeline, lane_names
from redrive.ops.suggest import unknown
from redrive.store.protocol import Store

SURELY: Final = 0.85
"""A code this similar to a known one is surely mistyped; GW_4XX and GW_5XX are less similar."""
_INSTANTS: Final = {"since", "until"}
_CHOICES: Final = {"state": STATES, "category": tuple(Category)}


def filter_from(store: Store, given: Mapping[str, Any], *, prefix: str = "") -> LetterFilter:
    """Return the filter of what was given for its fields, instants in seconds; None and False stand for what was not given.

    A prefix of a fingerprint becomes the whole. Errors name a field with `prefix` before it.

    Raises:
        ConfigurationError: a state, a category or a group that does not exist: it would match no letter.
    """
    ids, group = given.get("ids"), given.get("group")
    values: dict[str, Any] = {
        **given,
        "group": None if group is None else resolve_group(store, group),
        "ids": None if ids is None else tuple(ids),
        "escalated": True if given.get("escalated") else None,
    }
    for field, choices in _CHOICES.items():
        if (value := given.get(field)) is not None:
            values[field] = str(one_of(prefix + field, value, choices))
    return LetterFilter(**values)


def check_filter(store: Store, which: LetterFilter) -> None:
    """Refuse a pipeline, stage, code or run that is not known here, with suggestions, and a time span that ends before it begins.

    For people, who mistype, and for whom "none" would be good news. A program may well ask before the first job exists.
    """
    if which.since is not None and which.until is not None and which.since >= which.until:
        raise ConfigurationError(
            field="since",
            value=iso_text(which.since),
            rule=f"must be before until ({iso_text(which.until)})",
            fix="2h is longer ago than 1h: --since 2h --until 1h.",
        )
    if which.pipeline is not None:
        known_pipeline(store, which.pipeline)
    if which.stage is not None:
        stages = {stage for pipeline, stage in lane_names(store) if which.pipeline in {None, pipeline}}
        if which.stage not in stages:
            raise unknown(which.stage, stages, kind="stage", otherwise="There are no jobs in this database.")
    if which.code is not None:
        check_code(store, which.code)
    if which.run is not None:
        Runs(store).report(which.run)


def check_code(store: Store, code: str, *, may_be_new: bool = False) -> None:
    """Refuse a code that is neither built in nor that of any letter; one that may be new, only if it is surely mistyped."""
    if code in CODES or code in (known := known_codes(store)):
        return
    if may_be_new and not difflib.get_close_matches(code, {*known, *CODES}, cutoff=SURELY):
        return
    # Any built-in code may have been meant; those that letters have are what there is to choose from.
    close = difflib.get_close_matches(code, {*known, *CODES}, n=3)
    raise unknown(code, close or known, kind="code", otherwise="There are no dead letters in this database.")


def filter_options(which: LetterFilter) -> str:
    """Return a filter as command line options; not broader than it is, because somebody will vouch for all of it.

    A command takes the id of one letter, and no filter with it: several ids become `LETTER`.
    """
    if which.ids is not None:
        return str(which.ids[0]) if len(which.ids) == 1 else "LETTER"
    given = msgspec.structs.asdict(which)
    return " ".join(_option(name, value) for name, value in given.items() if value is not None)


def _option(name: str, value: object) -> str:
    if value is True:
        return f"--{name}"
    text = iso_text(value) if name in _INSTANTS else str(value)
    return f"--{name} {shlex.quote(text)}"
