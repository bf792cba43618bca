# SPDX-License-Identifier: Apache-2.0
"""One commit of a worker in PostgreSQL: settle what is done and claim what comes next.

Mostly it is one round trip: the worker uses what it remembers of its last commit (it is known, which lanes are paused), and the
server ends the transaction if that is not so any more. Then the commit is made again, and looks first. A commit with a row that was
lost or does not fit is made once more, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec

from redrive.store.plan import Continuation, ExchangePlan, InsertChild
from redrive.store.postgres.claim import Marks, jobs_of, send_claim
from redrive.store.postgres.session import Session
from redrive.store.postgres.settle import at_once, settle_at_once, settle_one_by_one
from redrive.store.records import Exchange, JobId, LaneId, Row


class ExchangeCall(ExchangePlan[Session]):
    """What a worker commits, carried out in one of these ways; each may be tried again, and another one after it."""

    def remembering(
        self, db: Session, paused: str, marks: Marks, insert: InsertChild[Session]
    ) -> Callable[[], Exchange]:
        """Commit in one round trip, unless letters or children are written; return what gives the answer, once it is here."""
        db.execute("plan_by_index")
        found = db.execute("begin_exchange", (*self.tokens, paused))
        in_place, lanes = self.continuation(paused)
        settle_at_once(db, self.worker, self.done, self.inserting(insert), in_place)
        swapped = self._send_swaps(db)
        rows = self._send_claim(db, in_place, lanes, marks)
        db.commit()
        return lambda: self.answer(in_place, _cancelled(found.fetchone()), jobs_of(rows()), swapped())

    def looking(self, db: Session, insert: InsertChild[Session], *, is_at_once: bool) -> tuple[Exchange, str]:
        """Read the present state, then commit; return the answer, and which lanes are paused.

        Raises:
            NotAtOnceError: nothing was committed; only with `is_at_once`.
        """
        is_known, is_repeated, paused, cancelled = cast(
            "tuple[int, int, str, str]", db.execute("before_exchange", self.tokens).fetchone()
        )
        before = jobs_of(db.execute("claimed", self.tokens).fetchall()) if is_repeated else ()
        in_place, lanes = self.continuation(paused, may_claim=bool(is_known) and not before)
        lost: tuple[JobId, ...] = ()
        broken: tuple[JobId, ...] = ()
        if is_at_once:
            with at_once():
                settle_at_once(db, self.worker, self.done, self.inserting(insert), in_place)
                db.sync()
        else:
            lost, broken = settle_one_by_one(db, self.worker, self.done, self.inserting(insert), in_place)
        swapped = self._send_swaps(db)
        jobs = before or jobs_of(self._send_claim(db, in_place, lanes, {})())
        answer = self.answer(in_place, cancelled, jobs, swapped())
        return msgspec.structs.replace(answer, lost=lost, broken=broken, is_known=bool(is_known)), paused

    def _send_swaps(self, db: Session) -> Callable[[], list[str]]:
        """Send the changes of breakers; return what gives the names of those that were changed."""
        if not self.breakers:
            return list
        cursor = db.execute_rows("swap_breakers", self.breakers)
        return lambda: [cast("str", name) for (name,) in cursor.fetchall()]

    def _send_claim(
        self, db: Session, in_place: Continuation, paused: frozenset[LaneId], marks: Marks
    ) -> Callable[[], list[Row]]:
        return send_claim(db, (self.token, self.worker, self.now), in_place.rest(), paused, marks)


def _cancelled(row: Row | None) -> str:
    return "[]" if row is None else cast("str", row[1])
