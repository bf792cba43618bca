# SPDX-License-Identifier: Apache-2.0
"""The context: what a stage may know and say, and when that is written down."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime

import pytest

from redrive import Backoff, Context, Pipeline, Redrive, RetryPolicy, register_secret, stage
from redrive.engine.pipeline.context import NOTE_MAX, NOTES_MAX, SubmittedChild
from redrive.errors import ConfigurationError
from redrive.store.sqlite.store import SqliteStore
from redrive.store.statements import transfer as transfer_sql
from redrive.testing import VirtualClock
from tests.unit.build import (
    ONCE,
    STEADY,
    attempts,
    bounded,
    jobs,
    leases_of,
    letters,
    one_stage,
    reached,
    threaded_parts,
    work,
    worker_on,
    working,
)


@stage
def ship(item: object) -> object:
    return item


SHIPPING = Pipeline("shipping", [ship])

pytestmark = pytest.mark.usefixtures("clock")


def test_notes_stand_redacted_in_the_attempts_row(store: SqliteStore, rd: Redrive) -> None:
    register_secret("hunter2-hunter2")

    def call(order: dict[str, str], ctx: Context) -> None:
        ctx.note("request_id", "req-42")
        ctx.note("sent", f"{order['customer']} with hunter2-hunter2")
        ctx.note("tries", 3)

    job = rd.submit(one_stage(call), {"customer": "Annabel Lee of the sea"})
    work(store, one_stage(call))

    (made,) = job.attempts()
    notes = made.notes
    assert isinstance(notes, dict)
    assert (notes["request_id"], notes["tries"]) == ("req-42", "3")
    assert "<payload:" in notes["sent"]
    assert "Annabel" not in str(notes)
    assert "hunter2" not in str(notes)


def test_notes_of_a_failed_attempt_are_kept_in_its_row_and_in_the_dead_letter(
    store: SqliteStore, rd: Redrive
) -> None:
    def call(_order: int, ctx: Context) -> None:
        ctx.note("request_id", "req-42")
        raise TypeError("oops")

    rd.submit(one_stage(call), 1)
    work(store, one_stage(call))

    assert attempts(store, "notes") == [('{"request_id":"req-42"}',)]
    ((context,),) = letters(store, "context")
    assert json.loads(context)["notes"] == {"request_id": "req-42"}  # type: ignore[arg-type]


def test_a_note_may_be_replaced_but_there_are_only_so_many() -> None:
    ctx = Context(job_id=1, pipeline="shop", stage="call", attempt=1)

    for number in range(NOTES_MAX):
        ctx.note(f"note {number}", number)
    ctx.note("note 0", "again")

    with pytest.raises(ConfigurationError, match="at most"):
        ctx.note("one more", 1)
    assert ctx.notes["note 0"] == "again"


def test_a_note_is_cut_after_it_was_redacted_so_that_no_half_of_a_secret_is_left(
    store: SqliteStore, rd: Redrive
) -> None:
    secret = "a rather long name of a customer"

    def call(order: dict[str, str], ctx: Context) -> None:
        ctx.note("long", "x " * (NOTE_MAX // 2 - 5) + order["customer"] + " y" * 5_000)

    job = rd.submit(one_stage(call), {"customer": secret})
    work(store, one_stage(call))

    ((made,),) = [(attempt.notes or {}).values() for attempt in job.attempts()]
    assert len(made) == NOTE_MAX
    assert "a rat" not in made


@pytest.mark.untraced
@pytest.mark.parametrize("name", [7, None, "n" * 10_000])
def test_whatever_the_name_of_a_note_its_job_is_settled(
    store: SqliteStore, rd: Redrive, name: object
) -> None:
    def call(number: int, ctx: Context) -> int:
        ctx.note(name, "x")  # type: ignore[arg-type]
        return number

    job = rd.submit(one_stage(call, retry=ONCE), 1)
    work(store, one_stage(call, retry=ONCE))

    assert job.status in {"complete", "failed"}
    assert len(str(attempts(store, "notes"))) < 2 * NOTE_MAX


def test_children_are_there_with_their_parents_checkpoint(store: SqliteStore, rd: Redrive) -> None:
    def split(order: int, ctx: Context) -> int:
        ctx.submit(SHIPPING, {"part": 1}, owner="ann", priority=2)
        ctx.submit(SHIPPING, {"part": 2})
        return order

    pipeline = Pipeline("shop", [stage(split), stage(name="done")(lambda order: order)])  # type: ignore[misc]  # a lambda has no types to infer
    parent = rd.submit(pipeline, 7)
    work(store, pipeline)

    assert jobs(store, "pipeline, status, parent_id, owner, priority")[1:] == [
        ("shipping", "queued", parent.id, "ann", 2),
        ("shipping", "queued", parent.id, None, 5),
    ]
    assert rd.job(2).facts.parent == parent.id
    work(store, SHIPPING)
    assert rd.jobs.counts() == {"complete": 3}


def test_a_failed_attempt_leaves_no_children(store: SqliteStore, rd: Redrive) -> None:
    def split(_order: int, ctx: Context) -> None:
        ctx.submit(SHIPPING, 1)
        if ctx.attempt < 3:
            raise ConnectionResetError(104, "reset")

    pipeline = one_stage(split, retry=STEADY)
    rd.submit(pipeline, 7)
    work(store, pipeline)

    assert attempts(store) == [("retry",), ("retry",), ("ok",)]
    assert jobs(store, "pipeline") == [("shop",), ("shipping",)]


def test_a_child_with_a_key_that_is_taken_is_the_job_that_has_it(store: SqliteStore, rd: Redrive) -> None:
    def split(order: int, ctx: Context) -> int:
        ctx.submit(SHIPPING, order, key="parcel")
        return order

    pipeline = one_stage(split)
    rd.submit_many(pipeline, [1, 2])
    work(store, pipeline)

    assert jobs(store, "pipeline, key") == [("shop", None), ("shop", None), ("shipping", "parcel")]


def test_a_child_of_an_async_stage_may_be_due_later(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    later = datetime.fromtimestamp(clock.wall() + 60, UTC)

    async def split(order: int, ctx: Context) -> int:
        ctx.submit(SHIPPING, order, run_at=later)
        return order

    pipeline = one_stage(split)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert rd.job(2).facts.run_at == later


def test_a_child_that_does_not_fit_its_pipeline_fails_the_attempt(store: SqliteStore, rd: Redrive) -> None:
    typed = one_stage(_whole, "typed")

    def split(order: int, ctx: Context) -> int:
        ctx.submit(typed, "seven")
        return order

    pipeline = one_stage(split, retry=ONCE)
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert rd.jobs.counts() == {"failed": 1}


def _whole(number: int) -> int:
    return number


def test_progress_is_written_by_the_heartbeat_and_gone_when_the_stage_is_done(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    seen: list[str | None] = []

    async def scene() -> None:
        async def count(number: int, ctx: Context) -> int:
            ctx.progress(1, 4, "pages")
            seen.append(rd.job(1).facts.progress)
            leases.beat(worker.name)
            seen.append(rd.job(1).facts.progress)
            leases.beat(worker.name)
            ctx.progress(2)
            leases.beat(worker.name)
            seen.append(rd.job(1).facts.progress)
            return number

        pipeline = one_stage(count)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        leases = leases_of(store, clock, worker)
        await worker.run(until_idle=True)

    bounded(scene())
    assert seen == [None, "1 of 4 pages", "2"]
    assert rd.job(1).facts.progress is None


def test_progress_is_redacted_and_cut(store: SqliteStore, rd: Redrive, clock: VirtualClock) -> None:
    seen: list[str] = []

    async def scene() -> None:
        async def count(order: dict[str, str], ctx: Context) -> None:
            ctx.progress(1, 4, order["customer"] + " password=hunter2hunter2 " + "y" * 20_000)
            leases_of(store, clock, worker).beat(worker.name)
            seen.append(str(rd.job(1).facts.progress))

        pipeline = one_stage(count)
        rd.submit(pipeline, {"customer": "Annabel Lee of the sea"})
        worker = worker_on(store, pipeline)
        await worker.run(until_idle=True)

    bounded(scene())
    assert seen[0].startswith("1 of 4 <payload:")
    assert "hunter2" not in seen[0]
    assert len(seen[0]) <= NOTE_MAX


def test_a_stage_that_looks_stops_when_its_job_was_cancelled(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    after: list[str] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()

        def count(_number: int, ctx: Context) -> None:
            ctx.heartbeat()
            rd.jobs.cancel(ctx.job_id, reason="changed my mind")
            leases.beat(worker.name)
            reached(loop)
            assert ctx.is_cancelled
            ctx.heartbeat()
            after.append("went on")

        pipeline = one_stage(count)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline, parts=threaded_parts())
        leases = leases_of(store, clock, worker)
        await worker.run(until_idle=True)

    bounded(scene())
    assert after == []
    assert jobs(store) == [("cancelled",)]
    assert attempts(store) == [("cancelled",)]


def test_progress_stops_a_cancelled_stage_too() -> None:
    ctx = Context(job_id=1, pipeline="shop", stage="call", attempt=1, is_cancelled=True)

    with pytest.raises(Exception, match="cancelled while it ran"):
        ctx.progress(1)


def test_the_idempotency_key_is_the_same_for_every_run_of_a_stage_and_differs_between_stages(
    store: SqliteStore, rd: Redrive
) -> None:
    keys: list[str] = []

    def call(number: int, ctx: Context) -> int:
        keys.append(ctx.idempotency_key)
        if ctx.attempt == 1:
            raise ConnectionResetError(104, "reset")
        return number

    pipeline = Pipeline("shop", [stage(name=name, retry=STEADY)(call) for name in ("one", "two")])
    rd.submit(pipeline, 1)
    work(store, pipeline)

    (installation,) = store.query(transfer_sql.installation())
    assert keys == [f"shop:{installation}-1:one"] * 2 + [f"shop:{installation}-1:two"] * 2


def test_the_deadline_is_the_start_of_this_attempt_plus_its_timeout(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    left: list[float | None] = []

    def call(number: int, ctx: Context) -> int:
        left.append(None if ctx.deadline is None else ctx.deadline.timestamp() - clock.wall())
        if ctx.attempt == 1 and ctx.deadline is not None:
            raise ConnectionResetError(104, "reset")
        return number

    retry = RetryPolicy(2, Backoff.fixed(100))
    limited, free = stage(name="limited", timeout=20, retry=retry)(call), stage(name="free")(call)
    pipeline = Pipeline("shop", [limited, free])
    rd.submit(pipeline, 1)
    work(store, pipeline)

    assert left == [pytest.approx(20), pytest.approx(20), None]


def test_what_a_stage_reports_as_progress_never_stops_the_heartbeat(
    store: SqliteStore, rd: Redrive, clock: VirtualClock
) -> None:
    """A file name that is no UTF-8 comes as surrogates; they must not kill the thread that keeps the lease."""

    async def scene() -> None:
        going = asyncio.Event()

        async def read(_number: int, ctx: Context) -> None:
            ctx.progress(1, text="na\udcefve.txt")
            going.set()
            await asyncio.Event().wait()

        pipeline = one_stage(read)
        rd.submit(pipeline, 1)
        worker = worker_on(store, pipeline)
        async with working(worker):
            await going.wait()
            leases_of(store, clock, worker).beat(worker.name)

    bounded(scene())
    assert str(store.read("SELECT progress FROM jobs")[0][0]).startswith("1 na")


def test_a_stage_knows_key_owner_run_and_the_hash_of_the_payload(store: SqliteStore, rd: Redrive) -> None:
    seen: list[tuple[object, ...]] = []

    def first(order: dict[str, int], ctx: Context) -> int:
        seen.append((ctx.key, ctx.owner, ctx.run_id, ctx.payload_hash))
        return order["id"]

    def second(_number: int, ctx: Context) -> None:
        seen.append((ctx.key, ctx.owner, ctx.run_id, ctx.payload_hash))

    flow = Pipeline("shop", [stage(first), stage(second)])
    rd.submit(flow, {"id": 1}, key="a", owner="ann")
    rd.submit(flow, {"id": 1})
    work(store, flow)

    digest = hashlib.sha256(b'{"id":1}').hexdigest()
    assert seen.count(("a", "ann", None, digest)) == 2
    assert seen.count((None, None, None, digest)) == 2


def test_the_id_of_a_child_is_known_after_the_commit(store: SqliteStore, rd: Redrive) -> None:
    handles: list[SubmittedChild] = []
    before: list[int | None] = []

    def call(_order: int, ctx: Context) -> None:
        handles.append(ctx.submit(SHIPPING, 1, delay=60))
        before.append(handles[-1].id)

    job = rd.submit(one_stage(call), 1)
    work(store, one_stage(call))

    (child,) = job.children()
    assert (before, [handle.id for handle in handles]) == ([None], [child.id])
    assert (child.facts.run_at - child.facts.created_at).total_seconds() == pytest.approx(60, abs=5)
