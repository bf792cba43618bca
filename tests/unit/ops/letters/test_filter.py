# SPDX-License-Identifier: Apache-2.0
"""A filter over dead letters as the options of a command: the command reads the same filter from them."""

from __future__ import annotations

import dataclasses
import shlex

import pytest
import typer
from typer.testing import CliRunner

from redrive import Redrive
from redrive.cli.input.letters import LetterChoice, letter_choice
from redrive.client.options import FilterOptions
from redrive.engine.replay.filter import LetterFilter
from redrive.ops.letters.filter import filter_options
from redrive.ops.letters.groups import fingerprints
from redrive.store.protocol import Store
from tests.unit.build import work
from tests.unit.ops.test_runs import SHOP

FIELDS = LetterFilter.__struct_fields__


@pytest.fixture
def known(store: Store, rd: Redrive) -> LetterFilter:
    """A filter with every field, each of which a letter of the store has."""
    run = rd.runs.open(SHOP, [-1]).id
    work(store, SHOP)
    (group,) = fingerprints(store)
    return LetterFilter(
        pipeline="shop",
        stage="fetch",
        code="AUTH_DENIED",
        category="auth",
        group=group,
        state="open",
        owner="Ann's team",
        key="order 7",
        since=12.0,
        until=1_700_000_000.25,
        ids=(1,),
        escalated=True,
        assignee="--ann",
        run=run,
    )


def typed(store: Store, options: str) -> LetterFilter:
    """Return the filter that a command makes of its options."""
    found: list[LetterFilter] = []
    app = typer.Typer()

    @app.command()
    @letter_choice
    def find(choice: LetterChoice) -> None:
        found.append(choice.filter(store))

    CliRunner().invoke(app, shlex.split(options), catch_exceptions=False)
    return found[0]


def test_the_options_of_a_command_and_the_arguments_of_a_method_are_the_fields() -> None:
    options = {each.name for each in dataclasses.fields(LetterChoice)}

    assert options - {"letter"} | {"ids"} == set(FIELDS) == set(FilterOptions.__annotations__)


@pytest.mark.parametrize("field", FIELDS)
def test_a_command_reads_the_filter_that_its_options_were_made_of(
    store: Store, known: LetterFilter, field: str
) -> None:
    value = getattr(known, field)

    options = filter_options(LetterFilter(**{field: value}))

    assert value is not None
    assert typed(store, options) == LetterFilter(**{field: value})


def test_the_options_of_a_filter_with_several_fields_have_all_of_them(
    store: Store, known: LetterFilter
) -> None:
    fields = {name: getattr(known, name) for name in FIELDS if name != "ids"}
    which = LetterFilter(**fields)

    assert typed(store, filter_options(which)) == which
