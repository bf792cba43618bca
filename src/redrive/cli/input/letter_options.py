# SPDX-License-Identifier: Apache-2.0
"""The options by which commands choose dead letters, and the filter they add up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from redrive.cli.input.instants import instant_from
from redrive.cli.input.options import existing
from redrive.core.failure import Category
from redrive.core.lifecycle import LetterState
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import RedriveError
from redrive.ops.letters.groups import fingerprints, known_codes, resolve_group
from redrive.ops.pipelines import lanes
from redrive.store.protocol import Store

CATEGORIES: Final = tuple(Category)


def _completed(ctx: typer.Context, ask: Callable[[Store], list[str]]) -> list[str]:
    """Complete a name from the database; a shell that completes must never see an error."""
    try:
        with existing(ctx.params.get("database_url")) as rd:
            return ask(rd.store)
    except RedriveError:
        return []


def _groups(ctx: typer.Context) -> list[str]:
    # Without the version: a colon ends a word for some shells.
    return _completed(ctx, lambda store: [each.rpartition(":")[2] for each in fingerprints(store)])


def _codes(ctx: typer.Context) -> list[str]:
    return _completed(ctx, known_codes)


def _stages(ctx: typer.Context) -> list[str]:
    return _completed(ctx, lambda store: sorted({lane.stage for lane in lanes(store)}))


LetterId = Annotated[int, typer.Argument(metavar="LETTER", help="The dead letter's id.")]
OfStage = Annotated[
    str | None, typer.Option("--stage", metavar="NAME", help="Of this stage.", autocompletion=_stages)
]
OfCode = Annotated[
    str | None, typer.Option("--code", "-c", metavar="CODE", help="With this code.", autocompletion=_codes)
]
OfCategory = Annotated[Category | None, typer.Option("--category", help="Of this category.")]
OfGroup = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="FINGERPRINT",
        help="Of this group; its beginning is enough.",
        autocompletion=_groups,
    ),
]
InState = Annotated[LetterState | None, typer.Option("--state", "-s", help="In this state.")]
OfOwner = Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Of jobs of this owner.")]
OfKey = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Of jobs with this key.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Failed then or later: 2h, 2026-01-02T03:04.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Failed before then.")]


def grouped(
    store: Store,
    *,
    pipeline: str | None,
    stage: str | None,
    code: str | None,
    category: Category | None,
    group: str | None,
    state: LetterState | None,
    since: str | None,
    until: str | None,
) -> LetterFilter:
    """Return what the options mean; the beginning of a fingerprint becomes the whole."""
    return LetterFilter(
        pipeline=pipeline,
        stage=stage,
        code=code,
        category=None if category is None else category.value,
        group=None if group is None else resolve_group(store, group),
        state=None if state is None else state.value,
        since=instant_from(since, "--since"),
        until=instant_from(until, "--until"),
    )
