# SPDX-License-Identifier: Apache-2.0
"""The storm: the same seed gives the same story, no client is lost, and jitter and limits do what they are for."""

from __future__ import annotations

import re
from statistics import median

import pytest

from redrive import Backoff, Breaker, ConfigurationError, RetryPolicy
from redrive.lab import storm as module
from redrive.lab.comparison import chart, chosen, compare, markdown, strategies, write_into
from redrive.lab.storm import Scenario, Storm, StormResult, Strategy, run_storm
from tests.tidy.tree import ROOT

SMALL = Scenario(clients=300, rate=20, burst=20)
BY_NAME = {each.name: each for each in strategies(SMALL)}
PAGE = ROOT / "docs/how-to/choose-a-retry-policy.md"


def adds_up(result: StormResult) -> bool:
    """Return whether every call and every client is accounted for."""
    return (
        result.calls == result.served + result.refused + result.failed
        and result.clients == result.served + result.given_up + result.unfinished
        and sum(result.calls_by_second.values()) == result.calls
    )


@pytest.mark.parametrize("name", list(BY_NAME))
@pytest.mark.parametrize(
    "scenario",
    [
        SMALL,
        Scenario(clients=300, rate="1200/min", burst=5, retry_after=4),
        Scenario(clients=200, rate=20, burst=20, outage=15),
        Scenario(clients=100, rate=50, burst=50, failure_rate=0.3),
    ],
    ids=["rate", "retry-after", "outage", "failures"],
)
def test_no_client_is_lost_and_a_seed_tells_the_same_story(name: str, scenario: Scenario) -> None:
    strategy = {each.name: each for each in strategies(scenario)}[name]
    first, again = Storm(scenario, strategy, 7).run(), Storm(scenario, strategy, 7).run()

    assert first == again
    assert adds_up(first)
    assert first.served == scenario.clients
    assert first.seconds >= scenario.ideal_seconds - 1e-6


def test_another_seed_tells_another_story_where_chance_has_a_part() -> None:
    one, two = run_storm(SMALL, BY_NAME["jittered"], range(1, 3)).values()

    assert one != two
    assert list(run_storm(SMALL, BY_NAME["fixed"], range(1, 9))) == [1]


def test_clients_that_may_not_try_for_ever_give_up() -> None:
    result = Storm(SMALL, Strategy("few", RetryPolicy(3, Backoff.fixed(1))), 1).run()

    assert adds_up(result)
    assert result.given_up > 0


def test_a_storm_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_MAX", 5.0)
    result = Storm(Scenario(clients=5, outage=1_000), BY_NAME["fixed"], 1).run()

    assert (result.unfinished, adds_up(result)) == (5, True)


def test_a_breaker_keeps_clients_from_calling_a_service_that_is_down() -> None:
    scenario = Scenario(clients=200, rate=100, burst=100, outage=60)
    policy = RetryPolicy(10_000, Backoff.exponential(1, cap=10))
    breaker = Breaker("api", consecutive=5, open_for=10)
    plain = Storm(scenario, Strategy("plain", policy), 1).run()
    held = Storm(scenario, Strategy("held", policy, breaker=breaker), 1).run()

    assert held.failed < plain.failed / 10
    assert adds_up(held)


@pytest.mark.untraced
@pytest.mark.req("FG-9.1")
def test_jittered_exponential_backoff_calms_the_storm_and_a_limit_ends_it() -> None:
    """Three of the seeds; the page has the medians over all twenty."""
    scenario = Scenario()
    known = {each.name: each for each in strategies(scenario)}
    (fixed,) = run_storm(scenario, known["fixed"], range(1, 2)).values()
    jittered = run_storm(scenario, known["jittered"], range(1, 4)).values()

    assert fixed.refused == 495_000
    assert median(each.refused for each in jittered) <= 0.2 * fixed.refused
    assert median(each.retries for each in jittered) <= 0.7 * fixed.retries
    for clients, refused in ((10_000, fixed.refused), (1_000, 4_500)):
        ideal = Scenario(clients=clients)
        limited, learned = (Storm(ideal, known[name], 1).run() for name in ("limit", "adaptive"))
        assert limited.refused <= 0.05 * refused
        assert limited.seconds <= 1.25 * ideal.ideal_seconds
        assert learned.refused <= 0.05 * refused
        assert learned.seconds <= 1.5 * ideal.ideal_seconds


@pytest.mark.untraced
def test_the_figures_of_the_page_come_from_their_seeds() -> None:
    names = ("jittered", "full-jitter", "limit", "adaptive")
    text = PAGE.read_text(encoding="utf-8")
    for clients in (200, 1_000):
        scenario = Scenario(clients=clients)
        rows, _ = compare(scenario, chosen(strategies(scenario), names), range(1, 21))
        assert set(markdown(rows, range(1, 21)).splitlines()) <= set(text.splitlines())
    # The floor of the requirement, in the medians over all seeds.
    row = r"\| 10,000 \| jittered \|[^|]*\|[^|]*\| ([\d.]+)% \| ([\d.]+)% \|"
    (fewer, retries) = re.findall(row, text)[0]
    assert float(fewer) >= 80
    assert float(retries) >= 30


def test_a_chart_has_a_line_for_each_strategy() -> None:
    _, first = compare(SMALL, chosen(list(BY_NAME.values()), ["limit"]), range(1, 2))
    drawn = chart(SMALL, first)

    assert drawn.startswith("<svg")
    assert drawn.count("<polyline") == 2


def test_without_refusals_nothing_is_fewer() -> None:
    rows, _ = compare(Scenario(clients=1, burst=5), list(BY_NAME.values())[:2], range(1, 3))

    assert [(row.fewer_refused, row.against_ideal) for row in rows] == [(0.0, 1.0)] * 2


@pytest.mark.parametrize(
    "options",
    [{"clients": 0}, {"rate": "fast"}, {"burst": 0}, {"retry_after": 0}, {"outage": -1}, {"failure_rate": 2}],
)
def test_wrong_scenarios_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Scenario(**options)  # type: ignore[arg-type]


def test_a_page_without_marks_and_a_missing_one_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="must contain"):
        write_into(ROOT / "README.md", "table")
    with pytest.raises(ConfigurationError, match="can be read"):
        write_into(ROOT / "no such page.md", "table")
