# SPDX-License-Identifier: Apache-2.0
"""Metrics of `redrive worker`, scraped over HTTP: exact over processes, also when one is killed at work; and what is refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redrive import connect, telemetry
from redrive.store.statements import reports as report_sql
from redrive.store.statements import workers as worker_sql
from tests.e2e.shell import Shell, free_ports, until

OUTCOMES = ("ok", "retry", "hold", "dead", "crashed", "cancelled", "skipped")
BUSY = """
from redrive import Backoff, Pipeline, RetryPolicy, stage

@stage(retry=RetryPolicy(2, Backoff.fixed(0.01)))
def work(number: int) -> int:
    if number % 10 == 3:
        raise ConnectionResetError(104, "reset")
    return number

@stage
def finish(number: int) -> int:
    return number

busy = Pipeline("busy", [work, finish])
"""
Samples = dict[tuple[str, ...], float]


def scrape(port: int, path: str = "/metrics") -> Samples:
    """Return every sample by its name and the values of its labels, by the labels' names; none while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return {}
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def stopped(worker: subprocess.Popen[str]) -> str:
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err
    return err


@pytest.mark.untraced
def test_one_scrape_has_the_exact_sum_of_all_processes_also_of_one_that_was_killed(shell: Shell) -> None:
    (shell.folder / "busy_flow.py").write_text(BUSY, encoding="utf-8")
    port = free_ports(1)
    ran = shell.start("worker", "busy_flow:busy", "--processes", "2", "--metrics", str(port), "--lease", "1")
    with connect() as rd:
        until(lambda: len(rd.store.query(worker_sql.workers())) == 2 and bool(scrape(port)), ran)
        first = int(str(rd.store.query(worker_sql.workers())[0][2]))
        for _ in range(10):
            shell.write("items.jsonl", *range(100))
            shell("submit", "busy_flow:busy", "--file", "items.jsonl")
        # In the middle of its work, wherever that is.
        until(lambda: scrape(port).get(("redrive_attempts_total", "ok", "busy", "finish"), 0) > 50, ran)
        known = {str(row[0]) for row in rd.store.query(worker_sql.workers())}
        os.kill(first, signal.SIGKILL)
        until(lambda: rd.jobs.counts() == {"complete": 900, "failed": 100}, ran)
        until(lambda: bool({str(row[0]) for row in rd.store.query(worker_sql.workers())} - known), ran)

        found = scrape(port)
        stored = {
            (outcome, row.stage): count
            for row in rd.store.query(report_sql.stage_reliability(pipeline="busy"))
            for outcome in OUTCOMES
            if (count := getattr(row, outcome))
        }
        err = stopped(ran)

    assert "exit code -9" in err
    for (outcome, name), count in stored.items():
        assert found["redrive_attempts_total", outcome, "busy", name] == count, (outcome, name)
    assert sum(stored.values()) == sum(
        count for (metric, *_), count in found.items() if metric == "redrive_attempts_total"
    )
    assert found["jobs_failed_total", "NETWORK_RESET"] == 100
    assert found["redrive_retries_total", "NETWORK_RESET", "busy", "work"] == 100
    assert found["job_processing_duration_seconds_count", "busy", "finish"] >= 900
    assert found["queue_depth", "busy", "work"] == found["jobs_active", "busy", "work"] == 0
    assert found["redrive_settle_batch_size_sum",] > 0, "counted by the processes themselves"


@pytest.mark.untraced
@pytest.mark.traced_programs
def test_a_single_worker_serves_them_on_both_ports_and_counts_retries_by_hand(shell: Shell) -> None:
    metrics, health = free_ports(1), free_ports(1)
    shell("submit", "flows:orders", "0")
    ports = ("--metrics", str(metrics), "--health-port", str(health))
    ran = shell.start("worker", "flows:orders", *ports)
    until(lambda: scrape(metrics).get(("jobs_failed_total", "BUG_CODE")) == 1, ran)

    shell("dlq", "triage", "1", "--diagnosis", "transient", "--yes", "--reason", "a test")
    shell("dlq", "remediate", "1", "--evidence", "fixed", "--safe", "--yes", "--reason", "a test")
    retried = shell("job", "retry", "1", "--reason", "a test", "--yes")

    assert retried.code == 0, retried.err
    until(lambda: scrape(health).get(("manual_retry_total",)) == 1, ran)
    with urllib.request.urlopen(f"http://127.0.0.1:{health}/healthz", timeout=30) as answer:
        assert answer.headers["Content-Type"] == "application/json"
    stopped(ran)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_that_is_in_use_is_refused(shell: Shell, processes: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        ended = shell(
            "worker", "flows:orders", "--until-idle", "--metrics", str(port), "--processes", processes
        )

    assert ended.code == 2
    assert f"error: metrics cannot be listened on, got '127.0.0.1:{port}'" in ended.err


@pytest.mark.parametrize("port", ["0", "99999", "-1"])
def test_a_port_that_is_none_is_refused(shell: Shell, port: str) -> None:
    ended = shell("worker", "flows:orders", "--until-idle", f"--metrics={port}")

    assert ended.code == 2
    assert "error: --metrics must be a whole number from 1 to 65535" in ended.err


def test_without_the_extra_the_command_names_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "find_spec", lambda _library: None)

    ended = shell("worker", "flows:orders", "--until-idle", "--metrics", str(free_ports(1)))

    assert ended.code == 2
    assert "needs prometheus_client, which is not installed" in ended.err
    assert "pip install 'redrive[metrics]'" in ended.err
