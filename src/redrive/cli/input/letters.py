# SPDX-License-Identifier: Apache-2.0
"""Which dead letters a command is about: the options that choose them, the filter they make, and confirming a change.

A command names one parameter `choice`; `letter_filter` gives it the filter options, `letter_choice` also the id of one letter.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Final

import typer

from redrive.cli.input.action import Action, option_group
from redrive.cli.input.options import Format, OfPipeline, completing
from redrive.cli.input.times import past_instant
from redrive.cli.output.errors import FAILED
from redrive.cli.output.tables import print_facts, print_message
from redrive.core.failure import Category
from redrive.core.units import plural
from redrive.engine.replay.filter import STATES, LetterFilter
from redrive.errors import ConfigurationError
from redrive.ops.letters.filter import check_filter, filter_from
from redrive.ops.letters.freeze import FrozenSet, freeze
from redrive.ops.letters.groups import fingerprints, known_codes
from redrive.ops.letters.preview import Preview
from redrive.ops.letters.triage import ActResult
from redrive.ops.pipelines import lane_names
from redrive.store.protocol import Store

NO_MATCH: Final = "no dead letters match"


# Without the version of a fingerprint: a colon ends a word in some shells.
complete_groups = completing(lambda store: [each.rpartition(":")[2] for each in fingerprints(store)])
complete_codes = completing(known_codes)
complete_stages = completing(lambda store: sorted({stage for _, stage in lane_names(store)}))

LetterId = Annotated[int, typer.Argument(metavar="LETTER", help="The dead letter's id.")]
OfStage = Annotated[
    str | None,
    typer.Option("--stage", metavar="NAME", help="Of this stage.", autocompletion=complete_stages),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    """What was typed to choose letters."""

    letter: Annotated[
        int | None, typer.Argument(metavar="LETTER", help="One dead letter's id, instead of a filter.")
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="FINGERPRINT",
            help="Of this group; the first digits are enough.",
            autocompletion=complete_groups,
        ),
    ] = None
    pipeline: OfPipeline = None
    stage: OfStage = None
    code: Annotated[
        str | None,
        typer.Option("--code", "-c", metavar="CODE", help="With this code.", autocompletion=complete_codes),
    ] = None
    category: Annotated[Category | None, typer.Option("--category", help="Of this category.")] = None
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            help=f"In this state: {', '.join(STATES)}.",
            autocompletion=lambda: list(STATES),
        ),
    ] = None
    owner: Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Of jobs of this owner.")] = (
        None
    )
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Of jobs with this key.")] = None
    run: Annotated[int | None, typer.Option("--run", metavar="ID", help="Of jobs of this run.")] = None
    assignee: Annotated[str | None, typer.Option("--assignee", metavar="NAME", help="Assigned to NAME.")] = (
        None
    )
    escalated: Annotated[
        bool, typer.Option("--escalated", help="Brought back by a replay with the same permanent failure.")
    ] = False
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Failed then or later: 2h, 2026-01-02T03:04."),
    ] = None
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Failed before then.")] = None

    def filter(self, store: Store, *, may_be_all: bool = False) -> LetterFilter:
        """Return the filter; refuse unknown names, an id together with a filter, and, unless all are allowed, neither."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "letter"}
        given |= {name: past_instant(f"--{name}", given[name]) for name in ("since", "until")}
        which = filter_from(store, given, prefix="--")
        check_filter(store, which)
        is_all = which == LetterFilter()
        if self.letter is not None and not is_all:
            raise ConfigurationError(
                field="LETTER",
                value=self.letter,
                rule="cannot be combined with a filter",
                fix="Give one of them.",
            )
        if self.letter is None and is_all and not may_be_all:
            raise ConfigurationError(
                field="LETTER",
                value=None,
                rule="or a filter is required",
                fix="Give an id, or --group, --pipeline, --code, ...; redrive dlq groups lists the groups.",
            )
        return which if self.letter is None else LetterFilter(ids=(self.letter,))

    def freeze(self, store: Store) -> FrozenSet:
        """Freeze the letters that match; none at all ends the command with exit code 1."""
        frozen = freeze(store, self.filter(store))
        if not frozen.count:
            print_message(f"error: {NO_MATCH}; redrive dlq groups lists the groups")
            raise typer.Exit(FAILED)
        return frozen


letter_choice = option_group("choice", LetterChoice)
"""Adds the options that choose letters: an id, or a filter."""
letter_filter = option_group("choice", LetterChoice, without={"letter"})
"""Adds the options of a filter alone."""


def confirm_change(preview: Preview, verb: str, action: Action) -> FrozenSet:
    """Print exactly how many letters will change, and which will not and why, then ask; return the letters.

    With nothing to change there is nothing to ask: that is the result, with exit code 1.
    """
    if not preview.changes:
        print_changed(preview.frozen, ActResult(changed=0, left=preview.stays), action.output)
    states = ", ".join(f"{letters:,} {state}" for state, letters in preview.changes.items())
    letters = plural(preview.frozen.count, "dead letter")
    among = letters if preview.changing == preview.frozen.count else f"{preview.changing:,} of {letters}"
    question = f"{verb} {among} ({states})"
    if action.yes:
        print_message(question)
    else:
        for reason, count in preview.stays.items():
            print_message(f"{count:,} will not change: {reason.text(count)}")
    action.confirm(f"{question}?")
    return preview.frozen


def print_changed(frozen: FrozenSet, result: ActResult, output: Format) -> None:
    """Print what became of a frozen set; exit code 1 when nothing of it was changed."""
    facts = {"subject": str(frozen.subject), "count": frozen.count}
    left = {str(reason): letters for reason, letters in result.left.items()}
    print_facts({**facts, "changed": result.changed, "left": left}, output)
    for reason, letters in result.left.items():
        print_message(f"{letters:,} not changed: {reason.text(letters)}")
    if not result.changed:
        print_message("nothing was changed")
        raise typer.Exit(FAILED)
