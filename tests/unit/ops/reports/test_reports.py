# SPDX-License-Identifier: Apache-2.0
"""What attempts add up to, and the pictures of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from redrive import (
    Backoff,
    CodeSet,
    ConfigurationError,
    Jitter,
    OwnCode,
    Pipeline,
    Redrive,
    RetryPolicy,
    stage,
)
from redrive.errors import RunError
from redrive.ops.reports import charts
from redrive.ops.reports.reports import Scope, account, error_ranking, retry_histogram, stage_reliability
from redrive.store.statements import jobs as job_sql
from tests.embedded import changing

STEADY = Backoff.fixed(1, jitter=Jitter.none())
SVG = "{http://www.w3.org/2000/svg}"


def flow(name: str = "shop") -> Pipeline:
    """Each item fails so often before it is fetched; a negative one cannot be stored."""
    left: dict[int, int] = {}

    @stage(retry=RetryPolicy(6, STEADY))
    def fetch(number: int) -> int:
        left.setdefault(number, number)
        if left[number] > 0:
            left[number] -= 1
            raise ConnectionResetError(104, "reset")
        return number

    @stage
    def store(number: int) -> int:
        if number < 0:
            raise KeyError(number)
        return number

    return Pipeline(name, [fetch, store])


def test_retries_are_counted_by_job_and_many_of_them_together(rd: Redrive) -> None:
    shop = flow()
    rd.submit_many(shop, [0, 1, 2, 3, 4, -1])
    rd.work([shop], until_idle=True)

    found = retry_histogram(rd.store, Scope(pipeline="shop"))

    assert [(bucket.retries, bucket.jobs) for bucket in found] == [("0", 2), ("1", 1), ("2", 1), ("3+", 2)]
    assert sum(bucket.share for bucket in found) == pytest.approx(1)
    assert retry_histogram(rd.store, Scope()) == found
    of_store = retry_histogram(rd.store, Scope(stage="store"))
    assert [bucket.jobs for bucket in of_store] == [6, 0, 0, 0]


def test_errors_are_ranked_and_stages_weighed(rd: Redrive) -> None:
    shop = flow()
    rd.submit_many(shop, [1, 2, -1])
    rd.work([shop], until_idle=True)

    reset, bug = error_ranking(rd.store, Scope(pipeline="shop"))
    fetch, store = stage_reliability(rd.store, Scope(pipeline="shop"))

    assert (reset.code, reset.category, reset.failures, reset.jobs) == ("NETWORK_RESET", "network", 3, 2)
    assert (bug.code, bug.share) == ("BUG_CODE", 0.25)
    assert (fetch.attempts, fetch.ok, fetch.retry, fetch.dead, fetch.success) == (6, 3, 3, 0, 0.5)
    assert (store.attempts, store.ok, store.dead, store.cancelled) == (3, 2, 1, 0)
    assert stage_reliability(rd.store, Scope(stage="store")) == [store]
    assert [each.code for each in error_ranking(rd.store, Scope(stage="store"))] == ["BUG_CODE"]


def test_a_code_of_an_applications_own_has_the_category_its_letters_have(rd: Redrive) -> None:
    codes = CodeSet("shop", [OwnCode("SHOP_KEY", [PermissionError])], otherwise=OwnCode("SHOP_OTHER"))
    others = CodeSet("mall", [OwnCode("SHOP_KEY", [KeyError])], otherwise=OwnCode("SHOP_OTHER"))

    @stage(retry=RetryPolicy(2, STEADY, retry_on=[ConnectionError]))
    def sell(number: int) -> int:
        if number and rd.store.query(job_sql.attempts(job=number)):
            return number
        raise ConnectionResetError if number else PermissionError

    @stage(retry=RetryPolicy(1))
    def search(number: int) -> int:
        raise KeyError(number)

    shop, mall = Pipeline("shop", [sell], codes=codes), Pipeline("mall", [search], codes=others)
    report = rd.run(shop, [0], failure_budget=None)
    rd.submit(shop, 2)
    rd.work([shop], until_idle=True)
    rd.submit(mall, 0)
    rd.work([mall], until_idle=True)

    def categories(scope: Scope) -> dict[str, str | None]:
        return {each.code: each.category for each in error_ranking(rd.store, scope)}

    assert categories(Scope(pipeline="shop")) == {"SHOP_KEY": "io", "SHOP_OTHER": None}
    assert categories(Scope(run=report.id)) == {"SHOP_KEY": "io"}
    assert categories(Scope(pipeline="mall")) == {"SHOP_KEY": "bug"}


def test_reports_of_a_run_leave_other_jobs_out(rd: Redrive) -> None:
    shop, mall = flow(), flow("mall")
    rd.submit_many(mall, [3, -5])
    rd.work([mall], until_idle=True)
    rd.run(shop, [1, -1, 0])
    scope = Scope(run=1)

    assert [bucket.jobs for bucket in retry_histogram(rd.store, scope)] == [2, 1, 0, 0]
    assert [(each.code, each.failures) for each in error_ranking(rd.store, scope)] == [
        ("BUG_CODE", 1),
        ("NETWORK_RESET", 1),
    ]
    assert [(each.pipeline, each.attempts) for each in stage_reliability(rd.store, scope)] == [
        ("shop", 4),
        ("shop", 3),
    ]
    told = account(rd.store, scope)
    assert (told.total, told.items, told.succeeded, told.dead, told.open, told.adds_up) == (
        3,
        3,
        2,
        1,
        0,
        True,
    )
    assert told.subject == "run 1"


def test_every_job_of_a_pipeline_is_accounted_for(rd: Redrive) -> None:
    shop = flow()
    rd.submit_many(shop, [0, -1])
    rd.work([shop], until_idle=True)
    waiting = rd.submit_many(shop, [0, 0, 0])
    rd.jobs.cancel(waiting[0])

    told = account(rd.store, Scope(pipeline="shop"))

    assert (told.total, told.succeeded, told.dead, told.cancelled, told.open) == (5, 1, 1, 1, 2)
    assert (told.queued, told.processing, told.pruned, told.items) == (2, 0, 0, None)
    assert told.adds_up
    assert str(Scope()) == "all pipelines"


def test_an_account_that_does_not_add_up_says_by_how_much(rd: Redrive) -> None:
    shop = flow()
    rd.submit_many(shop, [0, 0])
    rd.work([shop], until_idle=True)
    with changing(rd) as db:
        db.execute("UPDATE tallies SET jobs = 1")

    told = account(rd.store, Scope(pipeline="shop"))

    assert (told.adds_up, told.difference) == (False, 1)


def test_what_is_not_known_is_refused_with_what_is(rd: Redrive) -> None:
    with pytest.raises(ConfigurationError, match="There is no job in this database"):
        retry_histogram(rd.store, Scope(pipeline="shop"))
    with pytest.raises(RunError) as none:
        account(rd.store, Scope(run=1))
    rd.run(flow(), [0])

    with pytest.raises(ConfigurationError, match="Did you mean shop"):
        error_ranking(rd.store, Scope(pipeline="shopp"))
    with pytest.raises(ConfigurationError, match="Did you mean store"):
        stage_reliability(rd.store, Scope(pipeline="shop", stage="stores"))
    with pytest.raises(RunError) as unknown:
        account(rd.store, Scope(run=9))
    with pytest.raises(RunError, match="belongs to pipeline 'shop'"):
        rd.submit(flow("mall"), 0)
        account(rd.store, Scope(run=1, pipeline="mall"))
    with pytest.raises(ConfigurationError, match="needs a run or a pipeline"):
        account(rd.store, Scope())
    assert "There is no run" in none.value.hint
    assert "The last ones are: 1" in unknown.value.hint


HOSTILE = '</text><script>alert("1")</script>\x00\ud800 & a name that is very long indeed'


@pytest.mark.parametrize(
    "drawn",
    [
        charts.histogram(HOSTILE, [(HOSTILE, 3), ("1", 0)]),
        charts.histogram("nothing", []),
        charts.ranking("codes", [(HOSTILE, 3), ("B", 1)]),
        charts.ranking("nothing", []),
        charts.shares("stages", [(HOSTILE, {"ok": 2, "dead": 1}, HOSTILE), ("idle", {}, "0")]),
        charts.trends("groups", [(HOSTILE, [0, 1, 4, 2], "rising"), ("none", [], "quiet"), ("one", [1], "")]),
        charts.trends("nothing", []),
    ],
    ids=["bars", "no bars", "ranking", "no ranking", "shares", "trends", "no trends"],
)
def test_a_picture_is_well_formed_stands_alone_and_runs_nothing(drawn: str) -> None:
    root = ET.fromstring(drawn)

    kinds = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert kinds <= {"svg", "title", "style", "rect", "text", "polyline"}
    assert "prefers-color-scheme:dark" in drawn
    assert drawn.count("http") == 1
    assert "url(" not in drawn
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]


def test_a_picture_shows_names_and_numbers() -> None:
    root = ET.fromstring(charts.ranking("codes", [("NETWORK_RESET", 1234), ("BUG_CODE", 617)]))

    texts = [element.text for element in root.iter(f"{SVG}text")]
    widths = [float(element.attrib["width"]) for element in root.iter(f"{SVG}rect")][1:]
    assert texts == ["codes", "NETWORK_RESET", "1,234", "BUG_CODE", "617"]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.1)
