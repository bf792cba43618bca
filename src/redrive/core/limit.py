# SPDX-License-Identifier: Apache-2.0
"""Configure a limit: how many calls per second, how many at once, counted in what, and per which key.

The arithmetic of the bucket is in `core.limit_state`; nothing here depends on time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from redrive.core.arguments import flag, function, name, number, whole
from redrive.core.units import SECONDS
from redrive.errors import ConfigurationError

RATE_MAX: Final = 1e9
"""Per second; more is a mistake, or no limit."""
_RATE: Final = re.compile(r"(?P<count>\d{1,12}(?:\.\d{1,9})?)\s*/\s*(?P<unit>[a-z]+)")
RATE_UNITS: Final = {**SECONDS, "day": SECONDS["d"], "week": SECONDS["w"]}
"""Seconds in each unit of a rate."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a dependency may be asked for, by all workers of a store together.

    `rate` is a text such as "500/min", or a number per second; `burst` is how much may be spent at once after a pause (by default
    what one second allows, at least 1). `concurrency` is how many calls run at once. A call counts 1, or what `cost`, a function
    of the stage's input, returns; `ctx.used(name, amount)` corrects that by what the call really used. With `key`, a function of
    the job, every key has a limit of its own. `adaptive` learns the rate from answers that say "too many requests"; then `rate` is
    the most it tries, and may be left out. Stages share a limit by its name.
    """

    name: str
    _: KW_ONLY
    rate: str | float | None = None
    burst: float | None = None
    concurrency: int | None = None
    cost: Callable[[Any], float] | None = None
    key: Callable[[Any], str | int | None] | None = None
    adaptive: bool = False

    def __post_init__(self) -> None:
        name("Limit.name", self.name, fix='Write Limit("openai", ...).')
        where = f"Limit({self.name})"
        flag(f"{where}.adaptive", self.adaptive)
        if self.rate is not None:
            object.__setattr__(self, "rate", parse_rate(f"{where}.rate", self.rate))
        if self.concurrency is not None:
            whole(f"{where}.concurrency", self.concurrency, minimum=1, fix="Leave it out for no limit.")
        if not self.is_metered and self.concurrency is None:
            raise ConfigurationError(
                field=where,
                value=None,
                rule="needs something to limit",
                fix='Give rate="500/min", concurrency=64, or adaptive=True.',
            )
        if self.burst is not None:
            check_burst(where, self.burst)
            if not self.is_metered:
                raise ConfigurationError(
                    field=f"{where}.burst",
                    value=self.burst,
                    rule="belongs to a rate, and there is none",
                    fix='Add rate="500/min", or leave it out.',
                )
        for option in ("cost", "key"):
            fix = "cost=lambda text: len(text) / 4, or key=lambda job: job.owner, for example."
            function(f"{where}.{option}", getattr(self, option), fix=fix)
        if self.cost is not None and not self.is_metered:
            raise ConfigurationError(
                field=f"{where}.cost",
                value=self.cost,
                rule="counts against a rate, and there is none",
                fix='Add rate="90000/min", or leave it out: concurrency counts calls.',
            )

    @property
    def is_metered(self) -> bool:
        """Whether it limits a rate, known or to be learned, and not only how many calls run at once."""
        return self.rate is not None or self.adaptive


def parse_rate(field: str, given: object) -> float:
    """Return a rate as a number per second: "500/min", "10/s", "2000/hour", "1000000/day", or a number.

    A text without a unit is refused as ambiguous.
    """
    found = _RATE.fullmatch(given.strip().lower()) if isinstance(given, str) else None
    if found is not None:
        unit = RATE_UNITS.get(found["unit"])
        rate = None if unit is None else float(found["count"]) / unit
    else:
        rate = number(given)
    if rate is None or not 0 < rate <= RATE_MAX:
        or_number = "" if isinstance(given, str) else ", or a number per second"
        raise ConfigurationError(
            field=field,
            value=given,
            rule=f'must be a rate such as "500/min"{or_number}, above 0 and at most {RATE_MAX:g} per second',
            fix="Give its unit: s, min, hour or day.",
        )
    return rate


def rate_text(rate: float) -> str:
    """Return a rate as people write it: in the shortest unit in which it is a whole number, or else per second, minute or hour."""
    for unit in ("s", "min", "hour", "day"):
        count = rate * RATE_UNITS[unit]
        if count >= 1 and abs(count - round(count)) < 1e-9 * count:
            return f"{round(count)}/{unit}"
    unit = "s" if rate >= 1 else "min" if rate * 60 >= 1 else "hour"
    count = rate * RATE_UNITS[unit]
    return f"{count:.0f}/{unit}" if count >= 100 else f"{count:.3g}/{unit}"


def check_burst(where: str, burst: object) -> None:
    """Refuse a burst that a limit cannot have."""
    given = number(burst)
    if given is None or not 1 <= given <= RATE_MAX:
        raise ConfigurationError(
            field=f"{where}.burst",
            value=burst,
            rule=f"must be a number of at least 1 and at most {RATE_MAX:g}",
            fix="Leave it out for what one second allows.",
        )
