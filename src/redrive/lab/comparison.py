# SPDX-License-Identifier: Apache-2.0
"""Strategies that a storm compares, and the comparison: as rows, as a chart, and as a block of a Markdown page.

The first strategy, fixed backoff, is what the others are compared with. Every figure is a median over the seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from redrive.core.backoff import Backoff, Jitter
from redrive.core.breaker import Breaker
from redrive.core.limit import Limit
from redrive.core.policy import RetryPolicy
from redrive.errors import ConfigurationError
from redrive.lab.storm import Scenario, StormResult, Strategy, run_storm
from redrive.ops.reports import charts

ATTEMPTS_MAX: Final = 1_000_000_000
"""Clients of a storm retry until they are served."""
OVERLOADS: Final = (2, 10, 20, 50, 100)
"""How many seconds of the service's rate the clients of a table ask for at once."""
BEGIN: Final = "<!-- redrive lab storm -->"
END: Final = "<!-- end of redrive lab storm -->"
POINTS: Final = 60
"""Values of a line in a chart."""


def strategies(scenario: Scenario, *, base: float = 1.0, cap: float = 60.0) -> list[Strategy]:
    """Return the strategies that are compared by default."""

    def policy(backoff: Backoff) -> RetryPolicy:
        return RetryPolicy(ATTEMPTS_MAX, backoff)

    def exponential(jitter: Jitter) -> RetryPolicy:
        return policy(Backoff.exponential(base, cap=cap, jitter=jitter))

    full = exponential(Jitter.full())
    breaker = Breaker("storm", consecutive=20, open_for=10)
    return [
        Strategy("fixed", policy(Backoff.fixed(base, jitter=Jitter.none()))),
        Strategy("linear", policy(Backoff.linear(base, cap=cap, jitter=Jitter.none()))),
        Strategy("exponential", exponential(Jitter.none())),
        Strategy("jittered", exponential(Jitter.ratio(0.25))),
        Strategy("full-jitter", full),
        Strategy("breaker", full, breaker=breaker),
        Strategy("limit", full, limit=Limit("storm", rate=scenario.per_second, burst=scenario.burst)),
        Strategy("adaptive", full, limit=Limit("storm", adaptive=True)),
    ]


def chosen(known: Sequence[Strategy], names: Sequence[str]) -> list[Strategy]:
    """Return the strategies of these names, the first of all before them; all of them without names."""
    by_name = {each.name: each for each in known}
    for name in names:
        if name not in by_name:
            raise ConfigurationError(
                field="--strategy",
                value=name,
                rule="must name a strategy",
                fix=f"There are: {', '.join(by_name)}.",
            )
    return [each for each in known if not names or each.name in {known[0].name, *names}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What one strategy did, in the median over the seeds."""

    strategy: str
    clients: int
    calls: int
    refused: int
    retries: int
    given_up: int
    unfinished: int
    seconds: float
    ideal_seconds: float
    fewer_refused: float
    """By which share there were fewer 429s than with the first strategy."""
    fewer_retries: float

    @property
    def against_ideal(self) -> float:
        """How many times the ideal time it took."""
        return self.seconds / self.ideal_seconds if self.ideal_seconds else 1.0


def compare(
    scenario: Scenario, compared: Sequence[Strategy], seeds: range
) -> tuple[list[Comparison], dict[str, StormResult]]:
    """Run every strategy; return a row for each, and the result of the first seed, to be drawn."""
    rows: list[Comparison] = []
    first: dict[str, StormResult] = {}
    for strategy in compared:
        results = run_storm(scenario, strategy, seeds).values()
        first[strategy.name] = next(iter(results))
        refused = median(each.refused for each in results)
        retries = median(each.retries for each in results)
        base = rows[0] if rows else None
        rows.append(
            Comparison(
                strategy=strategy.name,
                clients=scenario.clients,
                calls=round(median(each.calls for each in results)),
                refused=round(refused),
                retries=round(retries),
                given_up=round(median(each.given_up for each in results)),
                unfinished=round(median(each.unfinished for each in results)),
                seconds=round(median(each.seconds for each in results), 3),
                ideal_seconds=round(scenario.ideal_seconds, 3),
                fewer_refused=0.0 if base is None or not base.refused else 1 - refused / base.refused,
                fewer_retries=0.0 if base is None or not base.retries else 1 - retries / base.retries,
            )
        )
    return rows, first


def chart(scenario: Scenario, results: dict[str, StormResult]) -> str:
    """Draw the calls over time of each strategy, each with its own scale."""
    longest = max(result.seconds for result in results.values())
    wide = max(1, -(-int(longest + 1) // POINTS))
    rows: list[tuple[str, list[int], str]] = []
    for name, result in results.items():
        line = [0] * (int(longest) // wide + 1)
        for second, calls in result.calls_by_second.items():
            line[second // wide] += calls
        rows.append((name, line, f"{result.refused:,} x 429"))
    title = f"{scenario.clients:,} clients, {scenario.per_second:g}/s: calls over {longest:,.0f} s"
    return charts.trends(title, rows)


def markdown(rows: Sequence[Comparison], seeds: range) -> str:
    """Return rows as a table of a page."""
    lines = [
        f"Medians over the seeds {seeds[0]} to {seeds[-1]}; `redrive lab storm --into` has written this table.",
        "",
        "| clients | strategy | calls | 429s | fewer 429s | fewer retries | seconds | x ideal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.clients:,} | {row.strategy} | {row.calls:,} | {row.refused:,} | {row.fewer_refused:.1%} |"
        f" {row.fewer_retries:.1%} | {row.seconds:,.1f} | {row.against_ideal:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


def write_into(page: Path, table: str) -> None:
    """Write a table between the two marks of a page."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            field="--into", value=str(page), rule="must be a page that can be read", fix=str(error.strerror)
        ) from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigurationError(
            field="--into", value=str(page), rule=f"must contain {BEGIN} and {END}", fix="Add both marks."
        )
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
