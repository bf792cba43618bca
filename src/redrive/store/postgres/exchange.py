# SPDX-License-Identifier: Apache-2.0
"""One commit of a worker in PostgreSQL: settle what is done and claim what comes next.

Mostly it is one round trip: the worker goes by what it remembers of its last commit (it is known, which lanes are paused), and the
server ends the transaction if that is not so any more. Then the commit is made again, and looks first. A commit with a row that was
lost or does not fit is made once more, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from redrive.errors import ConfigurationError
from redrive.store.plan import IN_PLACE, NOTHING, Continuation, in_order
from redrive.store.postgres.claim import Marks, claimed, jobs_of, send_claim
from redrive.store.postgres.session import Session
from redrive.store.postgres.settle import at_once, settle_at_once, settle_one_by_one
from redrive.store.records import Child, ClaimedJob, ClaimRequest, Exchange, JobId, LaneId, Row, Settlement

InsertChild = Callable[[Session, Child, float, JobId], JobId]


class ExchangeCall:
    """What a worker commits. Each of its ways may be tried again, and another one after it."""

    def __init__(
        self, worker: str, done: Sequence[Settlement], want: ClaimRequest, *, now: float, token: int
    ) -> None:
        self._worker = worker
        self._done = done
        self._want = want
        self._now = now
        self._token = token
        self._children: list[tuple[JobId, Child, JobId]] = []
        self._why: dict[JobId, ConfigurationError] = {}

    def remembering(
        self, db: Session, paused: str, marks: Marks, insert: InsertChild
    ) -> Callable[[], Exchange]:
        """Commit in one round trip, unless letters or children are written; return what gives the answer, once it is here."""
        db.execute("plan_by_index")
        found = db.execute("begin_exchange", (*self._tokens, paused))
        in_place = self._continuation(self._want, paused)
        settle_at_once(db, self._worker, self._done, self._inserting(insert), in_place)
        rows = self._send_claim(db, in_place, paused, marks)
        db.commit()
        return lambda: self._answer(in_place, _cancelled(found.fetchone()), jobs_of(rows()))

    def looking(self, db: Session, insert: InsertChild, *, is_at_once: bool) -> tuple[Exchange, str]:
        """Commit by what is so now; return the answer, and which lanes are paused.

        Raises:
            NotAtOnceError: nothing was committed; only with `is_at_once`.
        """
        is_known, is_repeated, paused, cancelled = cast(
            "tuple[int, int, str, str]", db.execute("before_exchange", self._tokens).fetchone()
        )
        before = claimed(db, self._worker, *self._tokens[1:]) if is_repeated else ()
        in_place = self._continuation(self._want if is_known and not before else NOTHING, paused)
        lost: tuple[JobId, ...] = ()
        broken: tuple[JobId, ...] = ()
        if is_at_once:
            with at_once():
                settle_at_once(db, self._worker, self._done, self._inserting(insert), in_place)
                db.sync()
        else:
            lost, broken = settle_one_by_one(db, self._worker, self._done, self._inserting(insert), in_place)
        jobs = before or jobs_of(self._send_claim(db, in_place, paused, {})())
        answer = self._answer(in_place, cancelled, jobs)
        return msgspec.structs.replace(answer, lost=lost, broken=broken, is_known=bool(is_known)), paused

    def report_children(self, answer: Exchange) -> None:
        """Give the children their ids; once it is committed, because a transaction that is rolled back has stored none of them."""
        for parent, child, made in self._children:
            if parent not in answer.broken:
                child.stored[:] = [made]

    @property
    def _tokens(self) -> tuple[str, int, int]:
        return self._worker, self._token, self._token | IN_PLACE

    def _continuation(self, want: ClaimRequest, paused: str) -> Continuation:
        return Continuation(want, _lanes(paused), token=self._token | IN_PLACE, now=self._now)

    def _inserting(self, insert: InsertChild) -> Callable[[Session, Child, float, JobId], None]:
        self._children.clear()

        def inserted(db: Session, child: Child, now: float, parent: JobId) -> None:
            try:
                made = insert(db, child, now, parent)
            except ConfigurationError as error:
                self._why[parent] = error
                raise
            self._children.append((parent, child, made))

        return inserted

    def _send_claim(
        self, db: Session, in_place: Continuation, paused: str, marks: Marks
    ) -> Callable[[], list[Row]]:
        terms = (self._token, self._worker, self._now)
        return send_claim(db, terms, in_place.rest(), _lanes(paused), marks)

    def _answer(self, in_place: Continuation, cancelled: str, jobs: tuple[ClaimedJob, ...]) -> Exchange:
        in_place.mark_cancelled(msgspec.json.decode(cancelled, type=list[JobId]))
        claimed = in_order(self._want, (*in_place.taken.values(), *jobs))
        return Exchange(lost=(), broken=(), why=self._why, claimed=claimed)


def _lanes(paused: str) -> frozenset[LaneId]:
    return frozenset(msgspec.json.decode(paused, type=list[LaneId]))


def _cancelled(row: Row | None) -> str:
    return "[]" if row is None else cast("str", row[1])
