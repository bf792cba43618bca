# SPDX-License-Identifier: Apache-2.0
"""Workers from the command line: how they end, what they say, and several of them kept up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request

import pytest

from redrive import Redrive, connect
from redrive.cli import supervisor
from redrive.cli.supervisor import Supervisor, worst
from redrive.engine.clock import Clock, wait_for
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.statements import workers as worker_sql
from redrive.testing import virtual_time
from tests.e2e.shell import Shell, free_ports, until

RENAMED = """
from redrive import Pipeline, stage

@stage
def halved(number: int) -> float:
    return number / 2

orders = Pipeline("orders", [halved])
"""


def started_in(log: str) -> str:
    """Return the first worker that a log names."""
    return log[log.index("worker worker-") :].partition(" started")[0]


def live(rd: Redrive) -> list[tuple[str, int]]:
    return [(str(row[0]), int(str(row[2]))) for row in rd.store.query(worker_sql.workers())]


def test_one_worker_serves_several_pipelines(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    shell("submit", "flows:asking", "5")

    ended = shell("worker", "flows:orders", "flows:asking", "--until-idle", "--lease", "5")

    assert (ended.code, ended.out) == (0, "")
    with connect() as rd:
        database = rd.store.query(upkeep_sql.database_name())[0]
    assert [line.partition(": ")[2] for line in ended.err.splitlines() if "started" in line] == [
        f"{started_in(ended.err)} started: serves orders, asking from {database}, 64 at once, lease 5 s"
    ]
    assert "ended (idle) after" in ended.err.splitlines()[-1]
    assert ended.err.splitlines()[-1].endswith(": 3 ok")
    assert shell.json("stats") == {"complete": 2, "total": 2}


def test_a_worker_waits_some_time_for_what_is_held(shell: Shell) -> None:
    shell("submit", "flows:asking", "5")
    shell("breaker", "isolate", "model", "--new", "--yes")

    with virtual_time() as clock:
        start = clock.monotonic()
        ended = shell("worker", "flows:asking", "--until-idle", "--hold-max", "50")

        assert ended.code == 3
        assert clock.monotonic() - start >= 50


def test_a_worker_says_which_jobs_wait_in_a_stage_that_was_renamed(shell: Shell) -> None:
    shell("submit", "flows:orders", "5")
    (shell.folder / "renamed.py").write_text(RENAMED, encoding="utf-8")

    ended = shell("worker", "renamed:orders", "--until-idle")

    assert ended.code == 3
    assert "1 job queued in orders.fetch, a stage the pipeline no longer has" in ended.err
    assert "@stage(name='fetch')" in ended.err


def test_log_lines_name_their_job_and_other_libraries_are_quiet_unless_asked_for(shell: Shell) -> None:
    logs = "    logging.getLogger(__name__).info('hello')\n    logging.getLogger('library').info('GET')\n    return"
    (shell.folder / "talking.py").write_text(
        "import logging\n" + RENAMED.replace("    return", logs), encoding="utf-8"
    )

    def logged(*options: str) -> str:
        shell("submit", "talking:orders", "5")
        return shell("worker", "talking:orders", "--until-idle", *options).err

    quiet = logged("--log-level", "warning")
    everything = logged("--log-level", "info")
    usual = logged()

    assert quiet == ""
    assert "talking: [job 2 orders.halved attempt 1] hello" in everything
    assert "library: [job 2 orders.halved attempt 1] GET" in everything
    assert "talking: [job 3 orders.halved attempt 1] hello" in usual
    assert "library: " not in usual


def test_a_log_of_json_has_one_object_per_line(shell: Shell) -> None:
    shell("submit", "flows:orders", "13")

    lines = shell("worker", "flows:orders", "--until-idle", "--log-format", "json").err.splitlines()

    started, retried, dead, ended = (json.loads(line) for line in lines)
    assert (started["event"], started["pipelines"], started["lease"]) == ("started", ["orders"], 30)
    about = {"logger": "redrive.worker", "level": "info", "job_id": 1, "pipeline": "orders", "stage": "fetch"}
    assert about.items() <= retried.items()
    assert (retried["event"], retried["attempt"], retried["code"]) == ("retry", 1, "NETWORK_RESET")
    assert retried["delay"] == 0.01
    assert (dead["event"], dead["attempt"], dead["code"]) == ("dead", 2, "NETWORK_RESET")
    assert (ended["event"], ended["ending"], ended["outcomes"]) == ("ended", "idle", {"retry": 1, "dead": 1})


def test_an_unknown_log_format_is_refused(shell: Shell) -> None:
    ended = shell("worker", "flows:orders", "--until-idle", "--log-format", "xml")

    assert ended.code == 2
    assert "'xml' is not one of 'text'" in ended.err


def test_log_lines_of_a_process_name_their_job_and_follow_the_level(shell: Shell) -> None:
    logs = (
        "    log = logging.getLogger('shop')\n    log.info('hello')\n    log.warning('careful')\n    return"
    )
    (shell.folder / "talking.py").write_text(
        "import logging\n" + RENAMED.replace("    return", logs).replace("@stage", "@stage(process=True)"),
        encoding="utf-8",
    )
    shell("submit", "talking:orders", "5")

    worker = shell.start("worker", "talking:orders", "--until-idle", "--log-level", "warning")
    _, logged = worker.communicate(timeout=60)

    assert worker.returncode == 0, logged
    assert "shop: [job 1 orders.halved attempt 1] careful" in logged
    assert "hello" not in logged


@pytest.mark.parametrize(
    "options",
    [
        ["--health-port", "99999"],
        ["--health-port=-1"],
        ["--health-port", "0"],
        ["--health-port", "65535", "--processes", "2"],
        ["--health-port", "8081", "--health-host", " "],
        ["--health-port", "8081", "--health-host", "a" * 70],
    ],
)
def test_a_port_or_address_that_is_none_is_refused(shell: Shell, options: list[str]) -> None:
    ended = shell("worker", "flows:orders", "--until-idle", *options)

    assert ended.code == 2
    assert "error: --health-port must be" in ended.err or "error: health " in ended.err


def test_somebody_who_watches_is_told_what_is_served(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.cli.commands.worker.is_interactive", lambda: True)

    assert "serving orders; stop with Ctrl-C" in shell("worker", "flows:orders", "--until-idle").err


def test_a_worker_that_is_told_to_stop_ends_with_0(shell: Shell) -> None:
    port = free_ports(1)
    worker = shell.start("worker", "flows:orders", "--health-port", str(port))
    with connect() as rd:
        until(lambda: bool(live(rd)), worker)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            assert json.load(answer)["status"] == "ok"

        worker.send_signal(signal.SIGTERM)
        _, err = worker.communicate(timeout=60)

        assert worker.returncode == 0, err
        assert "ended (stopped)" in err.splitlines()[-1]
        assert live(rd) == []


@pytest.mark.traced_programs
def test_several_processes_share_the_work_and_end_when_nothing_is_left(shell: Shell) -> None:
    shell.write("items.jsonl", *range(1, 100))
    shell("submit", "flows:orders", "--file", "items.jsonl")

    ran = shell.start("worker", "flows:orders", "--processes", "2", "--until-idle")
    _, err = ran.communicate(timeout=60)

    assert ran.returncode == 0, err
    assert err.count(" ended (idle) after") == 2
    assert shell.json("stats") == {"complete": 98, "failed": 1, "total": 99}


def test_several_processes_report_that_the_rest_is_held() -> None:
    held = Supervisor([sys.executable, "-c", "raise SystemExit(3)"], 2, is_ending=True)

    assert held.run() == 3


def test_a_worker_that_is_killed_is_started_again_and_all_end_together(shell: Shell) -> None:
    ran = shell.start("worker", "flows:orders", "--processes", "2", "--health-port", str(free_ports(2)))
    with connect() as rd:
        until(lambda: len(live(rd)) == 2, ran)
        name, process = live(rd)[0]
        known = {each for each, _ in live(rd)}

        os.kill(process, signal.SIGKILL)
        until(lambda: bool({each for each, _ in live(rd)} - known), ran)
        ran.send_signal(signal.SIGTERM)
        _, err = ran.communicate(timeout=60)

        assert ran.returncode == 0, err
        assert "ended with exit code -9 and is restarted in 0.5 s" in err
        assert {each for each, _ in live(rd)} <= {name}, "the killed one could not say goodbye"


def test_workers_end_when_their_supervisor_is_killed(shell: Shell) -> None:
    ran = shell.start("worker", "flows:orders", "--processes", "2")
    with connect() as rd:
        until(lambda: len(live(rd)) == 2, ran)

        ran.kill()

        until(lambda: not live(rd))
        ran.communicate(timeout=60)


def test_what_cannot_work_is_not_started_again_and_again() -> None:
    wrong = Supervisor([sys.executable, "-c", "raise SystemExit(2)"], 2, is_ending=False)

    assert wrong.run() == 2


def test_a_worker_that_keeps_dying_is_given_up_where_it_should_end_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dying = Supervisor([sys.executable, "-c", "raise SystemExit(7)"], 1, is_ending=True)

    with virtual_time() as clock:
        assert dying.run() == 1

    assert clock.waits == [0.5, 1.0, 2.0, 4.0]
    assert "died 5 times in a row" in caplog.text


def test_one_that_is_told_to_stop_while_it_waits_to_start_again_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dying = Supervisor([sys.executable, "-c", "raise SystemExit(7)"], 1, is_ending=False)

    async def told(event: asyncio.Event, clock: Clock, _delay: float) -> None:
        asyncio.get_running_loop().call_soon(dying.stop)
        async with asyncio.timeout(30):
            await wait_for(event, clock, 3_600.0)

    monkeypatch.setattr(supervisor, "wait_for", told)

    assert dying.run() == 1


@pytest.mark.parametrize(
    ("codes", "code"),
    [([0, 0], 0), ([0, 3], 3), ([3, 2, 0], 2), ([0, 1, 2, 3], 1), ([-9, 3], 1), ([137], 1)],
)
def test_the_worst_exit_code_counts(codes: list[int], code: int) -> None:
    assert worst(codes) == code
