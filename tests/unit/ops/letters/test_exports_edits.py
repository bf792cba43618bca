# SPDX-License-Identifier: Apache-2.0
"""Changed values on their way from one installation to another: a replay there starts with what it would have started with here."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest

from redrive import Pipeline, Redrive, RetryPolicy, connect, stage
from redrive.core.replay import ReplayRules
from redrive.engine.replay.filter import LetterFilter
from redrive.ops.audit import Actor
from redrive.ops.jobs.erase import erase
from redrive.ops.jobs.retry import retry_job
from redrive.ops.letters.edit import edit
from redrive.ops.letters.exports import export
from redrive.ops.letters.imports import import_letters
from redrive.store.records import Part
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import release as release_sql
from redrive.store.statements import transfer as transfer_sql
from redrive.testing import virtual_time
from tests.databases import Address
from tests.embedded import table_rows

ANN = Actor("ann", "a test")
BOB = Actor("bob", "at the other end")
LARGE = "good " * 3_000


@stage(retry=RetryPolicy(1))
def take(text: str) -> str:
    if text.startswith("early"):
        raise KeyError(text)
    return text


@stage(retry=RetryPolicy(1))
def check(text: str) -> str:
    if text.startswith("bad"):
        raise KeyError(text)
    return text


SHOP = Pipeline("shop", [take, check], replay=ReplayRules(evidence="optional", export="include"))


@pytest.fixture
def here(address: Address) -> Generator[Redrive]:
    with virtual_time(), connect(address("here")) as opened:
        yield opened


@pytest.fixture
def there(address: Address) -> Generator[Redrive]:
    with connect(address("there")) as opened:
        opened.submit(SHOP, "other")
        opened.work([SHOP], until_idle=True)
        yield opened


def fail(rd: Redrive, text: str) -> None:
    rd.submit(SHOP, text)
    rd.work([SHOP], until_idle=True)


def change(rd: Redrive, value: str, *, letter: int = 1, part: Part = "input") -> None:
    edit(rd.store, letter, ANN, part=part, value=json.dumps(value).encode())


def carried(here: Redrive, there: Redrive, *, letter: int = 1) -> None:
    lines = [*export(here.store, LetterFilter(ids=(letter,)), with_values=True)]
    taken = import_letters(there.store, lines, BOB)
    assert (taken.made, taken.refused) == (1, [])


def replayed(rd: Redrive, job: int, *, from_start: bool = False) -> object:
    """Replay a job to its end, and return its result, or None when it failed again."""
    retry_job(rd.store, job, ANN, from_start=from_start)
    rd.work([SHOP], until_idle=True)
    return rd.job(job).result() if rd.job(job).status == "complete" else None


@pytest.mark.untraced
@pytest.mark.parametrize("value", ["good", LARGE])
@pytest.mark.parametrize(
    ("text", "part", "from_start", "is_used"),
    [
        ("bad", "input", False, True),
        ("bad", "payload", True, True),
        # The failed stage has an input of its own, equal to the payload as it is: a changed payload does not change it.
        ("bad", "payload", False, False),
        # The first stage's input is the payload.
        ("early", "payload", False, True),
        ("early", "input", False, True),
        ("early", "input", True, False),
    ],
)
def test_a_replay_elsewhere_starts_with_the_value_it_would_have_started_with_here(
    here: Redrive, there: Redrive, text: str, part: Part, from_start: bool, is_used: bool, value: str
) -> None:
    fail(here, text)
    change(here, value, part=part)
    carried(here, there)

    same = [replayed(rd, job, from_start=from_start) for rd, job in ((here, 1), (there, 2))]

    assert same == [value if is_used else None] * 2


def test_every_edit_comes_along_with_its_original_who_made_it_and_when(here: Redrive, there: Redrive) -> None:
    fail(here, "bad")
    change(here, "worse")
    change(here, "good")
    carried(here, there)

    # The job of the first letter is the second one there.
    made, kept = (
        rd.store.query(transfer_sql.exported_edits(job=job, letter=1)) for rd, job in ((here, 1), (there, 2))
    )

    assert kept == made
    assert [(each.before, each.after) for each in kept] == [(b'"bad"', b'"worse"'), (b'"worse"', b'"good"')]
    assert there.letters.value(1) == b'"good"'


def test_a_payload_that_was_changed_in_an_earlier_round_stays_changed_elsewhere(
    here: Redrive, there: Redrive
) -> None:
    fail(here, "bad")
    change(here, "bad again", part="payload")
    assert replayed(here, 1, from_start=True) is None

    carried(here, there, letter=2)
    payloads = [
        rd.store.query(release_sql.replay_candidates(ids=[letter], from_start=True))[0][0]
        for rd, letter in ((here, 2), (there, 1))
    ]

    assert [json.loads(each)[0][11] for each in payloads] == [1, 1]
    assert replayed(there, 2, from_start=True) is None
    assert (
        there.store.query(letter_sql.letters_of_job(job=2))[1].message
        == here.store.query(letter_sql.letters_of_job(job=1))[1].message
    )


def test_without_values_no_edit_leaves(here: Redrive) -> None:
    fail(here, "bad")
    change(here, "a-secret-of-ours")

    (line,) = export(here.store, LetterFilter())

    assert json.loads(line)["values"] is None
    assert b"a-secret-of-ours" not in line


def test_what_was_erased_does_not_leave_in_an_edit(here: Redrive) -> None:
    fail(here, "bad")
    change(here, "a-secret-of-ours")
    erase(here.store, 1, ANN)

    (line,) = export(here.store, LetterFilter(), with_values=True)

    assert json.loads(line)["values"] is None
    assert b"a-secret-of-ours" not in line


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("part", "result"),
        ("after", None),
        ("at", "2999-01-01T00:00:00Z"),
        ("actor", 7),
        ("at", "2020-01-01T00:00:00"),
    ],
)
def test_an_edit_that_is_wrong_is_refused_with_its_line(
    here: Redrive, there: Redrive, field: str, value: object
) -> None:
    fail(here, "bad")
    change(here, "good")
    told = json.loads(next(export(here.store, LetterFilter(), with_values=True)))
    if value is None:
        del told["values"]["edits"][0][field]
    else:
        told["values"]["edits"][0][field] = value

    taken = import_letters(there.store, [json.dumps(told).encode()], BOB)

    assert (taken.made, len(taken.refused)) == (0, 1)
    assert table_rows(there, "edits") == []


def test_a_value_of_an_edit_is_taken_out_of_what_others_wrote(here: Redrive, there: Redrive) -> None:
    fail(here, "bad")
    change(here, "a-value-of-theirs")
    told = json.loads(next(export(here.store, LetterFilter(), with_values=True)))
    told["letter"]["message"] = "there was a-value-of-theirs in it"

    import_letters(there.store, [json.dumps(told).encode()], BOB)

    assert "a-value-of-theirs" not in there.store.query(letter_sql.letters_of_job(job=2))[0].message
