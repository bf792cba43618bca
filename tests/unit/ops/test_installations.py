# SPDX-License-Identifier: Apache-2.0
"""Databases beside each other: other work has other idempotency keys, the same work keeps its own wherever it is carried."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from redrive import Context, Pipeline, Redrive, RetryPolicy, connect, stage
from redrive.core.replay import ReplayRules
from redrive.engine.replay.filter import LetterFilter
from redrive.ops.audit import Actor
from redrive.ops.jobs.erase import erase
from redrive.ops.jobs.retry import retry_job
from redrive.ops.letters.exports import export
from redrive.ops.letters.imports import import_letters
from redrive.ops.upkeep.backup import backup
from redrive.sinks.base import SunkLetter
from redrive.testing import virtual_time

ANN = Actor("ann", "a test")


class Shop:
    """A pipeline whose effect is had once per key, as a payment service has it."""

    name = "kept"

    def __init__(self) -> None:
        self.is_down = False
        self.had: dict[str, int] = {}
        self.keys: list[str] = []
        self.deliveries: dict[str, SunkLetter] = {}

        @stage(retry=RetryPolicy(1))
        def pay(number: int, ctx: Context) -> int:
            self.keys.append(ctx.idempotency_key)
            self.had.setdefault(ctx.idempotency_key, number)
            if self.is_down:
                raise KeyError(number)
            return number

        rules = ReplayRules(evidence="optional", export="include")
        self.pipeline = Pipeline("shop", [pay], sinks=[self], replay=rules)

    def deliver(self, letter: SunkLetter) -> None:
        assert letter.delivery not in self.deliveries
        self.deliveries[letter.delivery] = letter

    def work(self, rd: Redrive, *numbers: int) -> None:
        for number in numbers:
            rd.submit(self.pipeline, number)
        rd.work([self.pipeline], until_idle=True, concurrency=1)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def here(tmp_path: Path) -> Generator[Redrive]:
    with virtual_time(), connect(tmp_path / "here.db") as opened:
        yield opened


@pytest.fixture
def there(here: Redrive, tmp_path: Path) -> Generator[Redrive]:
    with connect(tmp_path / "there.db") as opened:
        yield opened


def lines(rd: Redrive) -> list[bytes]:
    return list(export(rd.store, LetterFilter(), ANN, with_values=True))


def test_other_work_of_another_database_has_other_keys(shop: Shop, here: Redrive, there: Redrive) -> None:
    shop.work(here, 1)
    shop.work(there, 2)

    assert sorted(shop.had.values()) == [1, 2]


def test_work_that_is_new_in_a_restored_backup_has_other_keys_and_what_was_in_it_keeps_its_own(
    shop: Shop, here: Redrive, tmp_path: Path
) -> None:
    here.submit(shop.pipeline, 1)
    backup(here.store, tmp_path / "copy.db", ANN)
    shop.work(here, 2)

    with connect(tmp_path / "copy.db") as copy:
        shop.work(copy, 3)

    assert shop.keys[0] == shop.keys[2]
    assert sorted(shop.had.values()) == [1, 2, 3]


def test_a_copy_of_a_copy_knows_all_it_comes_from(shop: Shop, here: Redrive, tmp_path: Path) -> None:
    for place in range(3):
        here.submit(shop.pipeline, place)
    backup(here.store, tmp_path / "1.db", ANN)
    with connect(tmp_path / "1.db") as first:
        first.submit(shop.pipeline, 3)
        backup(first.store, tmp_path / "2.db", ANN)
        shop.work(first, 4)
    with connect(tmp_path / "2.db") as second:
        shop.work(second, 5)
    shop.work(here, 6)

    assert sorted(shop.had.values()) == [0, 1, 2, 3, 4, 5, 6]
    assert len(shop.keys) == 5 + 5 + 4


def test_a_change_in_a_restored_backup_is_no_change_that_was_delivered_before(
    shop: Shop, here: Redrive, tmp_path: Path
) -> None:
    shop.is_down = True
    backup(here.store, tmp_path / "copy.db", ANN)
    shop.work(here, 1)

    with connect(tmp_path / "copy.db") as copy:
        shop.work(copy, 2)

    assert len(shop.deliveries) == 2
    assert len({letter.identity for letter in shop.deliveries.values()}) == 2


def test_an_imported_job_keeps_its_keys_however_far_it_is_carried(
    shop: Shop, here: Redrive, there: Redrive, tmp_path: Path
) -> None:
    shop.is_down = True
    shop.work(here, 1)
    shop.work(there, 2)
    import_letters(there.store, lines(here), ANN)
    with connect(tmp_path / "third.db") as third:
        import_letters(third.store, lines(there), ANN)
        shop.is_down = False
        shop.work(third)
        for job in (1, 2):
            retry_job(third.store, job, ANN)
        shop.work(third, 3)

    assert sorted(shop.had.values()) == [1, 2, 3]
    assert len(shop.keys) == 5


def test_a_restart_is_carried_too(shop: Shop, here: Redrive, there: Redrive) -> None:
    shop.is_down = True
    shop.work(here, 1)
    retry_job(here.store, 1, ANN, from_start=True)
    shop.work(here)
    import_letters(there.store, lines(here)[-1:], ANN)
    shop.work(there)

    retry_job(there.store, 1, ANN)
    shop.work(there)

    first, *later = shop.keys
    assert first not in later
    assert len(set(later)) == 1


def test_a_copy_takes_its_own_letters_for_known_and_later_ones_for_new(
    shop: Shop, here: Redrive, tmp_path: Path
) -> None:
    shop.is_down = True
    shop.work(here, 1)
    backup(here.store, tmp_path / "copy.db", ANN)
    shop.work(here, 2)

    with connect(tmp_path / "copy.db") as copy:
        shop.work(copy, 3)
        imported = import_letters(copy.store, lines(here), ANN)
        again = import_letters(here.store, lines(here), ANN)

    assert (imported.known, imported.made) == (1, 1)
    assert (again.known, again.made) == (2, 0)


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("name", "value"),
    [("origin", "elsewhere-1"), ("origin", "0123456789abcdef-0"), ("restarts", -1), ("restarts", 10**9)],
)
def test_an_origin_that_nobody_has_is_refused(
    shop: Shop, here: Redrive, there: Redrive, name: str, value: object
) -> None:
    shop.is_down = True
    shop.work(here, 1)
    (line,) = lines(here)
    told = json.loads(line)
    told["job"][name] = value

    imported = import_letters(there.store, [json.dumps(told).encode()], ANN)

    assert imported.refused == [(1, f"job.{name} is not valid")]


def test_a_hash_of_an_input_tells_nothing_to_whoever_tries_them_all(shop: Shop, here: Redrive) -> None:
    def hash_in(letter: int) -> object:
        return cast("dict[str, object]", here.letters.show(letter).letter.sanitized_context).get(
            "input_sha256"
        )

    shop.is_down = True
    shop.work(here, 123456)
    shop.work(here, 123456)
    found = hash_in(1)
    erase(here.store, 1, ANN)

    assert found != hashlib.sha256(b"123456").hexdigest()[:16]
    assert hash_in(2) == found
    assert hash_in(1) is None
