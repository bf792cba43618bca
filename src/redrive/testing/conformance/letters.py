# SPDX-License-Identifier: Apache-2.0
"""Dead letters in use: every filter finds, counts and lists the same ones, what people decide about them is kept, and exports too.

What a decision means is up to the lifecycle; here the store is asked the same thing in several ways.
"""

from __future__ import annotations

import msgspec
import pytest

from redrive.engine.replay.filter import LetterFilter
from redrive.errors import LetterNotFoundError
from redrive.ops.letters.freeze import freeze, frozen_steps
from redrive.ops.letters.groups import list_groups, resolve_group
from redrive.ops.letters.pages import list_letters
from redrive.ops.letters.preview import preview
from redrive.store.protocol import Store
from redrive.store.statements import letters as letter_sql
from redrive.store.statements import triage as triage_sql
from redrive.testing.conformance.build import agree, holds
from redrive.testing.conformance.shop import BY, LARGE, ShopScene, ShopTests


def found(store: Store, **which: object) -> list[int]:
    """Return the letters that match a filter, after comparing its lists, counts and groups."""
    chosen = LetterFilter(**which)  # type: ignore[arg-type]  # given by name
    frozen = freeze(store, chosen)
    ids = [letter for step in frozen_steps(store, frozen) for letter in step]
    first = list_letters(store, chosen, limit=2)
    listed = sorted(line.id for line in first.letters)
    if first.next_cursor is not None:
        rest = list_letters(store, chosen, before=first.next_cursor)
        listed = sorted([*listed, *(line.id for line in rest.letters)])
    counted = sum(sum(group.states.values()) for group in list_groups(store, chosen).groups)
    agree((listed, frozen.count, counted), (ids, len(ids), len(ids)))
    return ids


def from_elsewhere(lines: list[bytes]) -> list[bytes]:
    """Return lines of an export as another installation would have written them."""
    read = [msgspec.json.decode(line) for line in lines]
    return [msgspec.json.encode({**line, "origin": "0" * len(line["origin"])}) for line in read]


class LetterTests(ShopTests):
    """Filters, groups, triage, edits, exports and imports."""

    def test_every_filter_finds_counts_and_groups_the_same_letters(
        self, store: Store, shop: ShopScene
    ) -> None:
        """By each column of it, and by several."""
        shop.fail("a", owner="ann", key="k1")
        run = shop.rd.run(shop.pipeline, ["b", "rc"], failure_budget=None).id
        shop.clock.advance(7_200)
        later = shop.clock.wall()
        shop.fail("d", owner="ann")
        shop.rd.letters.assign(shop.rd.letters.choose(ids=(2,)), assignee="bob", **BY)
        group = shop.rd.letters.show(1).letter.group

        agree(found(store), [1, 2, 3, 4])
        agree(found(store, owner="ann"), [1, 4])
        holds(not found(store, owner="ann", code="NETWORK_RESET"))
        agree((found(store, key="k1"), found(store, run=run)), ([1], [2, 3]))
        agree(found(store, assignee="bob"), [2])
        holds(not found(store, escalated=True))
        of_bob = LetterFilter(assignee="bob").terms()
        counted = store.query(letter_sql.count_by_assignee(which=of_bob, after=0, last=9))
        agree(counted, [("shop", "open", 1)])
        agree((found(store, group=group), found(store, code="NETWORK_RESET")), ([1, 2, 4], [3]))
        agree(found(store, category=store.query(letter_sql.letter(letter=3))[0].category), [3])
        agree((found(store, since=later), found(store, until=later, stage="pay")), ([4], [1, 2, 3]))
        agree(found(store, ids=(4, 1), state="open"), [1, 4])
        agree((resolve_group(store, group[:8]), len(list_groups(store, LetterFilter()).groups)), (group, 2))
        with pytest.raises(LetterNotFoundError):
            freeze(store, LetterFilter(ids=(9,)))

    def test_what_a_replay_has_marked_is_taken_until_the_replay_is_cancelled(
        self, store: Store, shop: ShopScene
    ) -> None:
        """However the letters are named, and in a span of time; a set that was frozen before leaves freed ones alone."""
        shop.fail("a", "b", owner="ann")
        replay = shop.rd.replays.start(ids=(1,), **BY).id
        shop.drive()
        span = LetterFilter(since=0.0, until=shop.clock.wall() + 1)

        before = preview(store, freeze(store, LetterFilter(owner="ann")), "triage")
        agree(preview(store, freeze(store, LetterFilter()), "triage").changes, {"open": 1})
        agree([group.taken for group in list_groups(store, span).groups], [1])
        agree([group.taken for group in list_groups(store, LetterFilter(ids=(1, 2))).groups], [1])
        anyway = triage_sql.triage_letters(ids=[1], state="open", diagnosis="data").touching(1)
        agree(store.apply(anyway), None)
        shop.rd.replays.cancel(replay, **BY)
        after = preview(store, freeze(store, LetterFilter(owner="ann")), "triage")
        agree(shop.rd.letters.triage(before.frozen, diagnosis="data", **BY).changed, 1)
        agree([shop.rd.letters.show(letter).letter.state for letter in (1, 2)], ["open", "triaged"])
        shop.rd.letters.triage(after.frozen, diagnosis="data", **BY)
        agree(shop.rd.letters.show(1).letter.state, "triaged")

    def test_what_a_replay_has_released_is_not_taken_any_more(self, store: Store, shop: ShopScene) -> None:
        """In a span of time as in all."""
        shop.fail("a", "b", "c")
        shop.rd.replays.start(canary=(1,), **BY)
        shop.drive(2)

        for span in (LetterFilter(), LetterFilter(since=0.0, until=shop.clock.wall() + 1)):
            agree([group.taken for group in list_groups(store, span).groups], [2])

    def test_an_edit_is_made_on_the_value_that_was_looked_at(self, store: Store, shop: ShopScene) -> None:
        """Of two who edit at once, the second one does not overwrite the first."""
        shop.fail("a")

        def is_edited(last_edit: int | None, erased_at: float | None = None) -> bool:
            step = triage_sql.add_edit(
                letter=1,
                part="input",
                before=b'"a"',
                after=b'"b"',
                at=1.0,
                actor="ann",
                erased_at=erased_at,
                last_edit=last_edit,
            )
            return store.apply(step.touching(1)) is not None

        agree(
            [is_edited(None, 1.0), is_edited(None), is_edited(None), is_edited(1)], [False, True, False, True]
        )

    def test_what_people_decide_is_kept_and_on_record(self, shop: ShopScene) -> None:
        """From the diagnosis to the evidence, and back from a discard."""
        shop.fail("a", "b")
        every, one = shop.rd.letters.choose(), shop.rd.letters.choose(ids=(1,))
        shop.rd.letters.triage(every, diagnosis="auth_config", **BY)
        shop.rd.letters.remediate(one, evidence="the key was renewed", is_safe=True, **BY)
        shop.rd.letters.discard(shop.rd.letters.choose(ids=(2,)), **BY)
        shop.rd.letters.note(every, text="look at this", **BY)
        agree([shop.rd.letters.show(letter).letter.state for letter in (1, 2)], ["ready", "discarded"])

        agree(shop.rd.letters.restore(shop.rd.letters.choose(ids=(2,)), **BY).changed, 1)

        agree(shop.rd.letters.show(2).letter.state, "open")
        agree(shop.rd.letters.show(1).letter.evidence, "the key was renewed")
        about = shop.rd.events.operations(letter=2)
        agree([done.verb for done in about], ["triage", "discard", "note", "restore"])
        agree([done.id for done in shop.rd.events.operations(before=3)], [1, 2])
        agree([done.verb for done in shop.rd.events.operations(job=1)], ["triage", "remediate", "note"])

    def test_an_edit_is_what_a_replay_starts_with_and_keeps_the_original(self, shop: ShopScene) -> None:
        """A small value, a large one, and a letter that goes back to its original."""
        shop.fail("a", "b", LARGE)
        new = LARGE.encode().join([b'"', b'"'])
        for letter, value in ((1, b'"new"'), (2, new), (3, b'"short"')):
            shop.rd.letters.edit(letter, value=value, **BY)
        shop.rd.letters.edit(3, original=True, **BY)
        agree(shop.rd.letters.value(2, **BY), new)
        agree(len(shop.rd.letters.edits(3).edits), 2)
        holds(not shop.rd.letters.validate(pipelines=[shop.pipeline]).obstacles)

        shop.is_broken = False
        shop.rd.replays.start(canary=(3,), **BY)
        shop.work()

        agree([shop.rd.job(job).result(0) for job in (1, 2, 3)], ["new", LARGE, LARGE])

    def test_exported_letters_are_imported_once_and_replayed(self, shop: ShopScene) -> None:
        """With their edits and large values; those that are here already are left out."""
        shop.fail("a", LARGE)
        shop.rd.letters.edit(1, value=b'"edited"', **BY)
        shop.rd.letters.note(shop.rd.letters.choose(ids=(1,)), text="look", **BY)
        lines = list(shop.rd.letters.export(with_values=True, **BY))
        agree(shop.rd.letters.import_(lines, **BY).known, 2)

        imported = [shop.rd.letters.import_(from_elsewhere(lines), **BY) for _ in range(2)]

        agree([(each.made, each.known, len(each.refused)) for each in imported], [(2, 0, 0), (0, 2, 0)])
        origin = shop.rd.jobs.show(3).origin
        agree(origin is not None and (origin.job, len(origin.attempts)), (1, 2))
        shop.is_broken = False
        shop.rd.replays.start(ids=(3, 4), **BY)
        shop.work()
        agree([shop.rd.job(job).result(0) for job in (3, 4)], ["edited", LARGE])

    def test_a_letter_without_values_is_given_some(self, shop: ShopScene) -> None:
        """Small ones into the job's row, large ones beside it."""
        shop.fail("a", "b")
        shop.rd.letters.import_(from_elsewhere(list(shop.rd.letters.export(**BY))), **BY)

        shop.rd.letters.edit(3, value=b'"new"', **BY)
        shop.rd.letters.edit(3, part="payload", value=b'"older"', **BY)
        shop.rd.letters.edit(4, value=msgspec.json.encode(LARGE), **BY)
        shop.is_broken = False
        shop.rd.replays.start(ids=(3, 4), **BY)
        shop.work()

        agree([shop.rd.job(job).result(0) for job in (3, 4)], ["new", LARGE])
