# SPDX-License-Identifier: Apache-2.0
"""Metrics as they are scraped: from a file, a connection, several processes, the health port; and what cannot be had."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

import redrive
from redrive import ConfigurationError, Limit, Pipeline, connect, stage, telemetry
from redrive.engine.observers import Observer, install, installed, uninstall
from redrive.engine.pipeline.lanes import Lane, lanes_of
from redrive.errors import MissingExtraError, StoreUnavailableError
from redrive.store.records import WorkerFacts
from redrive.store.sqlite.store import SqliteStore
from redrive.telemetry import Metrics
from redrive.telemetry.catalogue import METRICS
from redrive.telemetry.worker_metrics import WorkerMetrics
from tests.e2e.shell import free_ports
from tests.tidy.tree import ROOT


@stage
async def double(number: int) -> int:
    return number * 2


SHOP = Pipeline("shop", [double])


class LimitSignal(Observer):
    """Signals the first claim that a limit kept from jobs; installed after the metrics, which have counted it by then."""

    def __init__(self) -> None:
        self.given = threading.Event()

    def limited(self, lanes: Sequence[Lane]) -> None:
        self.given.set()


@pytest.fixture
def limited() -> Generator[threading.Event]:
    signal = LimitSignal()
    install(signal)
    yield signal.given
    uninstall(signal)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def metrics(path: Path) -> Generator[Metrics]:
    with closing(Metrics(path)) as made:
        yield made


def scraped(text: bytes) -> dict[tuple[str, ...], float]:
    """Return every sample by its name and the values of its labels."""
    families = text_string_to_metric_families(text.decode())
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_scrape_has_what_the_store_and_the_worker_know(metrics: Metrics, path: Path) -> None:
    before = scraped(metrics.text())

    with connect(path) as rd:
        rd.submit_many(SHOP, range(5))
        rd.work([SHOP], until_idle=True)
    after = scraped(metrics.text())

    lane = ("shop", "double")
    assert after["redrive_attempts_total", "ok", *lane] == 5
    assert after["job_processing_duration_seconds_count", *lane] == 5
    assert after["job_processing_duration_seconds_bucket", "+Inf", *lane] == 5
    assert after["queue_depth", *lane] == 0
    assert after["redrive_store_up",] == 1
    settled = ("redrive_settle_batch_size_sum",)
    assert after[settled] - before[settled] == 5
    assert after["redrive_settle_seconds_count",] > before["redrive_settle_seconds_count",]


def test_every_metric_of_the_catalogue_is_described_in_a_scrape(metrics: Metrics) -> None:
    described = {
        line.split()[2]: line.split()[3]
        for line in metrics.text().decode().splitlines()
        if line.startswith("# TYPE ")
    }

    assert {metric.name: metric.kind for metric in METRICS}.items() <= described.items()


def test_what_the_application_counts_itself_is_in_the_scrape(metrics: Metrics) -> None:
    own = Counter("shop_parcels", "Parcels that were sent.")
    own.inc(3)

    assert scraped(metrics.text())["shop_parcels_total",] == 3


def test_lost_leases_reaped_jobs_and_limits_are_counted(metrics: Metrics, store: SqliteStore) -> None:
    before = scraped(metrics.text())
    observers, lanes = installed(), list(lanes_of(store, [Pipeline("limited", [double])]).values())

    observers.report(lambda each: each.declared_dead(2))
    observers.report(lambda each: each.reaped(3))
    observers.report(lambda each: each.limited(lanes))
    observers.report(lambda each: each.worker_started("w", WorkerFacts()))
    after = scraped(metrics.text())

    for name, count in (("redrive_lease_losses_total", 2), ("redrive_reaped_jobs_total", 3)):
        assert after[name,] - before[name,] == count
    assert after["redrive_limit_waits_total", "limited", "double"] == 1


@pytest.mark.untraced
@pytest.mark.parametrize(
    "limit",
    [
        Limit("plain", concurrency=1),
        Limit("keyed", concurrency=1, key=lambda job: "same"),
        Limit("costly", rate=40, burst=1, cost=lambda number: 1.0),
    ],
    ids=lambda limit: limit.name,
)
def test_a_claim_that_has_to_wait_for_a_limit_is_counted(
    metrics: Metrics, limited: threading.Event, path: Path, limit: Limit
) -> None:
    async def slow(number: int) -> int:
        """Take until the worker has claimed again meanwhile."""
        await asyncio.to_thread(limited.wait, 30)
        return number

    pipeline = Pipeline(f"waits-{limit.name}", [stage(name="slow", limits=[limit])(slow)])

    with connect(path) as rd:
        rd.submit_many(pipeline, range(4))
        rd.work([pipeline], until_idle=True)

    waits = scraped(metrics.text()).get(("redrive_limit_waits_total", pipeline.name, "slow"), 0)
    assert waits >= 1


def test_a_worker_that_is_not_measured_any_more_is_not_counted(path: Path) -> None:
    Metrics(path).close()

    assert not installed()


def test_metrics_of_an_open_connection(path: Path) -> None:
    async def scrape() -> None:
        async with connect(path) as rd:
            with closing(Metrics(rd)) as metrics:
                assert scraped(metrics.text())["redrive_store_up",] == 1
            assert await rd.jobs.counts() == {}, "it is not closed with the metrics"

    asyncio.run(scrape())


def test_a_store_that_does_not_answer_is_reported_as_such(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_store: object, _name: str, *_parameters: object) -> None:
        raise StoreUnavailableError(database="x", cause="no disk")

    monkeypatch.setattr("redrive.store.sqlite.store.SqliteStore.query", failing)

    found = scraped(metrics.text())

    assert found["redrive_store_up",] == 0
    assert not [name for name, *_ in found if name == "queue_depth"]


def test_a_port_serves_scrapes_until_it_is_ended(metrics: Metrics) -> None:
    port = free_ports(1)
    end = metrics.serve("127.0.0.1", port)
    address = f"http://127.0.0.1:{port}/metrics"

    with urllib.request.urlopen(address, timeout=30) as answer:
        assert scraped(answer.read())["redrive_store_up",] == 1
    with pytest.raises(ConfigurationError, match="cannot be listened on"):
        metrics.serve("127.0.0.1", port)
    with pytest.raises(ConfigurationError, match="cannot be listened on"):
        metrics.serve("no host at all", port)
    end()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=30)


def test_the_health_port_has_them_too(metrics: Metrics) -> None:
    page = installed().health_page("/metrics")

    assert page is not None
    kind, body = page()
    assert kind.startswith("text/plain")
    assert scraped(body)["redrive_store_up",] == 1
    assert installed().health_page("/healthz") is None
    assert WorkerMetrics().health_page("/metrics") is None


COUNTING = """
import os, signal, sys
from redrive.config import count_in
count_in(sys.argv[1])
from redrive.telemetry.worker_metrics import WorkerMetrics
WorkerMetrics().reaped(int(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_that_share_a_folder_are_summed_up_after_they_were_killed(
    path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "counts"
    folder.mkdir()

    for number in (3, 4):
        subprocess.run([sys.executable, "-c", COUNTING, str(folder), str(number)], check=False, timeout=60)
    with closing(Metrics(path, folder=folder)) as metrics:
        text = metrics.text()

    assert scraped(text)["redrive_reaped_jobs_total",] == 7
    assert b"# HELP redrive_reaped_jobs_total Jobs of dead workers" in text
    assert not installed(), "the supervisor itself has no worker"


LOADED = """
import sys
import redrive, redrive.telemetry, redrive.cli.app, redrive.cli.commands.worker
from redrive import Pipeline, connect, stage

@stage
def double(number: int) -> int:
    return number * 2

with connect(":memory:") as rd:
    rd.submit(Pipeline("shop", [double]), 1)
    rd.work([Pipeline("shop", [double])], until_idle=True)
print(*(name for name in sys.modules if name.partition(".")[0] in {"prometheus_client", "opentelemetry"}))
"""


def test_nothing_of_the_libraries_is_loaded_before_it_is_asked_for() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=60
    )

    assert run.stdout.split() == []


@pytest.mark.parametrize(("name", "extra"), [("Metrics", "metrics"), ("trace", "otel")])
def test_without_the_extra_its_name_is_in_the_error(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "find_spec", lambda _library: None)

    with pytest.raises(MissingExtraError, match="which is not installed") as missing:
        getattr(redrive.telemetry, name)
    assert missing.value.hint == f"Install it: pip install 'redrive[{extra}]'."


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Meters'"):
        _ = telemetry.Meters  # type: ignore[attr-defined]


def test_the_page_lists_every_metric_as_it_is() -> None:
    page = (ROOT / "docs" / "how-to" / "metrics-and-traces.md").read_text(encoding="utf-8")
    rows = {
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.meaning} |"
        for metric in METRICS
    }

    listed = {line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 5}
    assert listed == rows
