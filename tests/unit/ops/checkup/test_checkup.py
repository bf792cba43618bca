# SPDX-License-Identifier: Apache-2.0
"""What the checks of `redrive doctor` find."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, NamedTuple, cast

import pytest

from redrive import Pipeline, Redrive, connect, stage
from redrive.ops.audit import Actor
from redrive.ops.breakers import move
from redrive.ops.checkup import file
from redrive.ops.checkup.doctor import examine, has_problems, unopened
from redrive.ops.checkup.file import Limits, file_system_of
from redrive.ops.checkup.findings import Finding
from redrive.ops.pipelines import pause
from redrive.store.maintenance import Maintenance
from redrive.store.reader import Reader
from redrive.store.records import Call, ClaimRequest, ExchangeRequest, Step, WorkerFacts
from redrive.store.statements import runs as run_sql
from redrive.store.statements.jobs import LaneCount
from redrive.testing import VirtualClock, virtual_time
from tests.embedded import change_rows

ANN = Actor("ann", "a test")


@stage
def fetch(number: int) -> int:
    return 10 // number


SHOP = Pipeline("shop", [fetch])


def about(found: list[Finding], word: str) -> list[tuple[str, str]]:
    return [(each.level, each.sentence) for each in found if each.about == word]


def claim(rd: Redrive, clock: VirtualClock, worker: str = "w1", lease: float = 30.0) -> None:
    """Let a worker start, and take what is due."""
    who = WorkerFacts(host="here", process=7, pipelines=("shop",), concurrency=4)
    rd.store.start_worker(worker, clock.wall(), lease, who)
    lane = rd.store.lanes("shop", ["fetch"])[0]
    rd.store.exchange(ExchangeRequest(worker, [], ClaimRequest((lane,), 10), now=clock.wall(), token=1))


def test_an_empty_store_is_well(rd: Redrive) -> None:
    found = examine(rd.store, is_deep=True)

    assert not has_problems(found)
    assert {each.level for each in found} == {"ok"}
    assert [each for each in found if each.advice] == []


def test_a_worker_that_died_with_jobs_in_its_hands(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(SHOP, 1)
    claim(rd, clock)
    well = examine(rd.store)
    clock.advance(90)

    ill = examine(rd.store)

    assert about(well, "leases") == [("ok", "no lease has expired; 1 worker with 1 job")]
    assert about(ill, "leases") == [("problem", "w1 on here (pid 7): lease on 1 job expired 1 min ago")]


def test_a_worker_that_died_without_jobs_is_no_problem(rd: Redrive, clock: VirtualClock) -> None:
    claim(rd, clock)
    clock.advance(90)

    found = examine(rd.store)

    assert not has_problems(found)
    assert about(found, "leases") == [("ok", "no lease has expired; 0 workers with 0 jobs")]
    assert ("warn", "w1 on here (pid 7) was not stopped in order; it had no jobs") in about(found, "workers")


def test_a_job_that_runs_for_hours(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(SHOP, 1)
    claim(rd, clock, lease=100_000)
    clock.advance(2 * 3_600)

    assert ("warn", "job 1 has been in shop.fetch for 2 h") in about(examine(rd.store), "leases")


def test_jobs_that_nobody_holds_although_they_are_processing(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(SHOP, 1)
    claim(rd, clock)
    rd.store.apply(Step("delete_worker", ("w1",)))

    level, sentence = about(examine(rd.store), "leases")[0]

    assert level == "problem"
    assert sentence.endswith("1")


def test_what_is_due_needs_a_worker_and_a_live_one_is_enough(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(SHOP, 1)
    clock.advance(180)
    alone = examine(rd.store)
    rd.store.start_worker("w1", clock.wall(), 30.0, WorkerFacts(pipelines=("shop",)))
    served = examine(rd.store)

    assert about(alone, "workers") == [
        ("problem", "no live worker serves shop: 1 job due, the oldest for 3 min")
    ]
    assert about(served, "workers")[0][0] == "ok"


def test_a_paused_pipeline_needs_no_worker_but_a_reminder(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(SHOP, 1)
    pause(rd.store, "shop", ANN)
    clock.advance(86_400)

    found = examine(rd.store)

    assert not has_problems(found)
    assert about(found, "paused") == [("warn", "shop has been paused for 1 d with 1 queued job")]


@pytest.mark.parametrize(
    ("verb", "words"),
    [("open", "model has been open for 2 min"), ("isolate", "model was isolated by hand 2 min ago")],
)
def test_breakers_that_hold_work(
    rd: Redrive, clock: VirtualClock, verb: Literal["open", "isolate"], words: str
) -> None:
    move(rd.store, "model", verb, ANN, is_new=True)
    clock.advance(120)

    ((level, sentence),) = about(examine(rd.store), "breakers")

    assert level == "warn"
    assert words in sentence


def test_dead_letters_that_nobody_has_looked_at(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(SHOP, 0)
    rd.work([SHOP], until_idle=True)
    clock.advance(3_600)

    ((level, sentence),) = about(examine(rd.store), "dead letters")

    assert level == "warn"
    assert sentence.startswith("1 open dead letter, the oldest from 1")
    assert sentence.endswith(" h ago")
    (finding,) = (each for each in examine(rd.store) if each.about == "dead letters")
    assert finding.advice == "Run redrive dlq groups, then redrive dlq show ID."


def test_schedules_hooks_and_runs_that_nobody_looks_after(rd: Redrive, clock: VirtualClock) -> None:
    rd.schedules.add("hourly", SHOP, 1, cron="0 * * * *")
    rd.store.apply(run_sql.add_run(pipeline="shop", options=b"{}", now=clock.wall()))
    change_rows(
        rd,
        "INSERT INTO outbox (lane_id, job_id, dispatch, recipient, at, due_at) VALUES (1, 1, 1, 'hook', ?1, ?1)",
        (clock.wall(),),
    )
    clock.advance(86_400)

    found = examine(rd.store)

    assert about(found, "schedules")[0][0] == "problem"
    assert about(found, "runs") == [("warn", "run 1 of shop has not ended, and no live worker serves it")]
    assert about(found, "hooks")[0][1].startswith("1 hook call of shop late, the oldest by 1 d")


def test_a_clock_that_is_behind_what_is_stored(rd: Redrive, clock: VirtualClock) -> None:
    rd.submit(SHOP, 1)
    clock.advance(-0.0)
    with virtual_time(clock=VirtualClock(wall=clock.wall() - 7_200)):
        ((level, sentence),) = about(examine(rd.store), "clock")

    assert level == "problem"
    assert "2 h ahead of this machine" in sentence


class Usage(NamedTuple):
    """What the system tells about a disk."""

    total: int
    used: int
    free: int


class Damaged:
    """A store whose file and counters are not sound."""

    def __init__(self, rd: Redrive) -> None:
        self._store = rd.store
        self.maintenance = Maintenance(self)  # type: ignore[arg-type]  # asks by calls alone

    def query(self, call: Call[object]) -> list[object]:
        if call.name == "integrity":
            return ["row 3 missing from index jobs_ready"]
        if call.name == "broken_references":
            return [("attempts", "jobs", 4)]
        if call.name == "counts":
            return [LaneCount("shop", "fetch", "queued", 2), LaneCount("shop", "fetch", "failed", 1)]
        return self._store.query(call)

    def reading(self) -> AbstractContextManager[Reader]:
        return nullcontext(cast("Reader", self))


def test_a_file_that_is_damaged(rd: Redrive) -> None:
    found = examine(Damaged(rd), is_deep=True)  # type: ignore[arg-type]  # asks nothing else of it

    assert about(found, "integrity") == [
        ("problem", "the database is damaged: row 3 missing from index jobs_ready"),
        ("problem", "4 rows of attempts refer to no row of jobs"),
    ]


def test_counters_that_differ_from_the_jobs(rd: Redrive) -> None:
    rd.submit(SHOP, 1)

    found = examine(Damaged(rd), is_deep=True)  # type: ignore[arg-type]  # asks nothing else of it

    ((level, sentence),) = about(found, "counters")
    assert level == "problem"
    assert "shop.fetch failed: counter 1, recount 0; shop.fetch queued: counter 2, recount 1" in sentence


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("free", "level", "words"),
    [(100, "problem", "only 100 B free"), (300 * 1024**2, "ok", "300 MiB free")],
)
def test_a_disk_that_is_nearly_full(
    filed: Redrive, monkeypatch: pytest.MonkeyPatch, free: int, level: str, words: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(1, 1, free))

    ((found, sentence),) = about(examine(filed.store), "disk")

    assert found == level
    assert words in sentence


@pytest.mark.sqlite
def test_limits_are_for_the_caller_to_set(filed: Redrive) -> None:
    tight = Limits(size_max=1, log_max=-1, free_min=0)

    found = examine(filed.store, limits=tight)

    assert [level for level, _ in about(found, "size")] == ["warn", "warn"]


@pytest.mark.sqlite
def test_less_room_than_the_database_has(filed: Redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(1, 1, 1_000))

    ((level, sentence),) = about(examine(filed.store, limits=Limits(free_min=10)), "disk")

    assert (level, sentence) == ("warn", "1,000 B free, less than the database has")


@pytest.mark.sqlite
def test_a_network_file_system(filed: Redrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_mounts", lambda: f"server:/x {tmp_path} nfs4 rw 0 0\nbad line\n")

    found = about(examine(filed.store), "database")

    assert found[0][0] == "problem"
    assert "(nfs4)" in found[0][1]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/a b/x.db", "cifs"),
        ("/srv/x.db", "ext4"),
        ("/srvx/x.db", "xfs"),
        ("/home/x.db", "xfs"),
    ],
)
def test_the_longest_mount_point_above_a_file_counts(path: str, kind: str) -> None:
    mounts = "d1 / xfs rw 0 0\nd2 /srv ext4 rw 0 0\nd3 /srv/a\\040b cifs rw 0 0\n"

    assert file_system_of(Path(path), mounts) == kind
    assert file_system_of(Path(path), "") is None


def test_a_memory_store_has_no_file_to_look_at() -> None:
    with connect(":memory:") as rd:
        found = examine(rd.store, is_deep=True)

    assert about(found, "disk") == []
    assert not has_problems(found)


def test_a_database_that_is_not_there_is_told_without_making_it(tmp_path: Path) -> None:
    found = unopened(tmp_path / "none.db")

    assert found is not None
    assert found.level == "problem"
    assert list(tmp_path.iterdir()) == []


def test_where_mounts_are_not_told_nothing_is_said_about_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)

    assert file._mounts() == ""
