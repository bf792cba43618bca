# SPDX-License-Identifier: Apache-2.0
"""Which dead letters a command acts on: one by its id, or all that a filter means; counted exactly and asked about before it acts.

Every command that acts on letters takes the same options: `choosing` adds them to its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import typer

from redrive.cli.input.act import taking
from redrive.cli.input.letter_options import (
    InState,
    OfCategory,
    OfCode,
    OfGroup,
    OfKey,
    OfOwner,
    OfStage,
    Since,
    Until,
    grouped,
)
from redrive.cli.input.options import Format, OfPipeline, confirm
from redrive.cli.output.errors import FAILED
from redrive.cli.output.tables import answer_facts, say
from redrive.core.failure import Category
from redrive.core.lifecycle import LetterState
from redrive.engine.replay.filter import LetterFilter
from redrive.errors import ConfigurationError
from redrive.ops.letters.freeze import FrozenSet, check_filter, freeze
from redrive.ops.letters.preview import Preview
from redrive.ops.letters.triage import ActResult
from redrive.store.protocol import Store

OneLetter = Annotated[
    int | None, typer.Argument(metavar="LETTER", help="One dead letter's id, instead of a filter.")
]

_MANY: Final = tuple(
    (re.compile(one), many)
    for one, many in (
        (r"\bit is\b", "they are"),
        (r"\bit was\b", "they were"),
        (r"\bit became\b", "they became"),
        (r"\b(taken|triage|let go of) it\b", r"\1 them"),
    )
)
"""How what is said of one letter is said of many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was typed to choose letters."""

    letter: int | None
    pipeline: str | None
    stage: str | None
    code: str | None
    category: Category | None
    group: str | None
    state: LetterState | None
    owner: str | None
    key: str | None
    since: str | None
    until: str | None

    def means(self, store: Store, *, may_be_all: bool = False) -> LetterFilter:
        """Return the filter it adds up to; refuse an id together with a filter, and, unless all may be meant, neither."""
        which = msgspec.structs.replace(self._by_options(store), owner=self.owner, key=self.key)
        check_filter(store, which)
        if self.letter is None:
            if which == LetterFilter() and not may_be_all:
                raise ConfigurationError(
                    field="LETTER",
                    value="neither",
                    rule="or a filter must say which dead letters are meant",
                    fix="Give an id, or --group, --pipeline, --code, ...; redrive dlq groups shows what there is.",
                )
            return which
        if which != LetterFilter():
            raise ConfigurationError(
                field="LETTER",
                value=self.letter,
                rule="cannot be combined with a filter",
                fix="Give one of them.",
            )
        return LetterFilter(ids=(self.letter,))

    def _by_options(self, store: Store) -> LetterFilter:
        return grouped(
            store,
            pipeline=self.pipeline,
            stage=self.stage,
            code=self.code,
            category=self.category,
            group=self.group,
            state=self.state,
            since=self.since,
            until=self.until,
        )


def _choice_of(
    letter: OneLetter = None,
    *,
    group: OfGroup = None,
    pipeline: OfPipeline = None,
    stage: OfStage = None,
    code: OfCode = None,
    category: OfCategory = None,
    state: InState = None,
    owner: OfOwner = None,
    key: OfKey = None,
    since: Since = None,
    until: Until = None,
) -> Choice:
    return Choice(
        letter=letter,
        pipeline=pipeline,
        stage=stage,
        code=code,
        category=category,
        group=group,
        state=state,
        owner=owner,
        key=key,
        since=since,
        until=until,
    )


choosing = taking("choice", _choice_of)
"""Gives a command that takes a `choice` the options that make one, in front of its own."""


def chosen(store: Store, choice: Choice) -> FrozenSet:
    """Freeze what was chosen; nothing at all ends the command with exit code 1."""
    frozen = freeze(store, choice.means(store))
    if not frozen.count:
        say("error: no dead letter is like that; redrive dlq groups shows what there is")
        raise typer.Exit(FAILED)
    return frozen


def agreed(told: Preview, act: str, *, is_sure: bool, output: Format) -> FrozenSet:
    """Say exactly how many letters will be changed, which stay and why, and ask; a no ends the command with exit code 1.

    With nothing to change there is nothing to ask about: that is the answer, with exit code 1 as well.
    """
    if not told.changes:
        answer_judged(told.frozen, ActResult(changed=0, left=told.stays), output)
    question = f"{act} {told_of(told)}"
    if is_sure:
        say(question)
    else:
        for why, letters in told.stays.items():
            say(
                f"{letters:,} {'stays as it is' if letters == 1 else 'stay as they are'}: {of_all(why, letters)}"
            )
    confirm(f"{question}?", is_sure=is_sure)
    return told.frozen


def told_of(told: Preview) -> str:
    """Return how many letters of which states an act will change, as people say it."""
    states = ", ".join(f"{letters:,} {state}" for state, letters in told.changes.items())
    count = told.frozen.count
    among = f"{count:,}" if told.changing == count else f"{told.changing:,} of {count:,}"
    return f"{among} dead letter{'' if count == 1 else 's'} ({states})"


def of_all(why: str, letters: int) -> str:
    """Return the reason why a letter is left alone as it is said of so many."""
    if letters == 1:
        return why
    for one, many in _MANY:
        why = one.sub(many, why)
    return why


def answer_judged(frozen: FrozenSet, judged: ActResult, output: Format) -> None:
    """Show what became of a frozen set; exit code 1 when nothing of it could be changed."""
    facts = {
        "subject": frozen.subject,
        "count": frozen.count,
        "changed": judged.changed,
        "left": judged.left,
    }
    answer_facts(facts, output)
    for why, letters in judged.left.items():
        say(f"{letters:,} left as {'it is' if letters == 1 else 'they are'}: {of_all(why, letters)}")
    if not judged.changed:
        say("nothing was changed")
        raise typer.Exit(FAILED)
