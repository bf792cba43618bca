# SPDX-License-Identifier: Apache-2.0
"""Dead letters on their way to another database: what is exported with its values is imported once, and can be replayed there."""

from __future__ import annotations

import msgspec

from redrive.testing.conformance.build import agree
from redrive.testing.conformance.shop import BY, LARGE, ShopScene, ShopTests


def from_elsewhere(lines: list[bytes]) -> list[bytes]:
    """Return lines of an export as another installation would have written them."""
    read = [msgspec.json.decode(line) for line in lines]
    return [msgspec.json.encode({**line, "origin": "0" * len(line["origin"])}) for line in read]


class TransferTests(ShopTests):
    """Exports and imports."""

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
