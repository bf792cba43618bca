# SPDX-License-Identifier: Apache-2.0
"""Whether a filter over dead letters can mean any: names that nothing here has, and spans of time that are none, are refused.

For people, who make slips, and to whom "none" would be good news. A program may well ask before the first job is there.
"""

from __future__ import annotations

import difflib

from redrive.core.taxonomy import CODES
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import ConfigurationError
from redrive.ops.jobs.inspect import instant
from redrive.ops.letters.groups import known_codes
from redrive.ops.pipelines import known_pipeline, lanes
from redrive.ops.suggest import unknown
from redrive.store.protocol import Store

_NOTHING = "There is no job in this database."


def check_filter(store: Store, which: LetterFilter) -> None:
    """Refuse a pipeline, stage or code that is not known here, with those that are near, and a span that ends before it begins."""
    if which.since is not None and which.until is not None and which.since >= which.until:
        raise ConfigurationError(
            field="since",
            value=f"{instant(which.since):%Y-%m-%dT%H:%M:%SZ}",
            rule=f"must be before until ({instant(which.until):%Y-%m-%dT%H:%M:%SZ})",
            fix="2h is longer ago than 1h: --since 2h --until 1h.",
        )
    if which.pipeline is not None:
        known_pipeline(store, which.pipeline)
    if which.stage is not None:
        stages = {lane.stage for lane in lanes(store) if which.pipeline in {None, lane.pipeline}}
        if which.stage not in stages:
            raise unknown(which.stage, stages, kind="stage", otherwise=_NOTHING)
    if which.code is not None and which.code not in CODES:
        _check_code(store, which.code)


def _check_code(store: Store, code: str) -> None:
    known = known_codes(store)
    if code in known:
        return
    # Any built-in code may have been meant; those that letters have are what there is to choose from.
    near = difflib.get_close_matches(code, {*known, *CODES}, n=3)
    raise unknown(code, near or known, kind="code", otherwise="There is no dead letter in this database.")
