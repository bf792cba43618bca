# SPDX-License-Identifier: Apache-2.0
"""The retry policy as a value: how often to try, how long to wait, and which failures to retry.

It takes no decision; `core.decide` applies it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Final, Literal, TypeGuard, cast

from redrive.core.arguments import did_you_mean, flag, instance, is_http_status, seconds, whole
from redrive.core.backoff import Backoff
from redrive.core.classify import class_name
from redrive.core.failure import Failure
from redrive.core.taxonomy import CODES, SURELY, refuse_mistyped
from redrive.errors import ConfigurationError

Trigger = int | str | type[BaseException]
"""An entry of a policy's list: an HTTP status; a code, category or provider code; or an exception class."""

PERHAPS: Final = 0.8
"""So similar to a known code, a name is a mistyped one once the own codes of the application are known."""


@dataclass(frozen=True, slots=True)
class AddedTriggers:
    """What a policy retries besides what the classifier retries. Made by `also`."""

    triggers: tuple[Trigger, ...]

    def __iter__(self) -> Iterator[Trigger]:
        """Iterate over the triggers, as over those of a list."""
        return iter(self.triggers)


def also(*triggers: Trigger) -> AddedTriggers:
    """Retry these besides what the classifier retries: `RetryPolicy(5, retry_on=also("SCHEMA_INVALID"))`.

    A status, a code, a category, a provider code or an exception class, with the meaning that they have in a list.
    """
    return AddedTriggers(_triggers("also", triggers))


RetryOn = Literal["classified", "all", "none"] | AddedTriggers | Collection[Trigger]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to retry, and how long to wait.

    By default the classifier decides what is retried. `retry_on="all"` retries everything but `Fail` and `Cancel`, `"none"`
    nothing, and `also(...)` adds to what the classifier retries. A list replaces the classifier: a status or code in it always
    retries; an exception class in it retries unless the failure carries an HTTP status or provider code that the classifier calls
    permanent; what is not in it does not retry. `give_up_on` wins over all of that. `per_code_max_attempts={"IO_ERROR": 2}` is one
    retry for that code, even if `max_attempts` allows more. The wait is at least the delay of Retry-After, which is cut to
    `retry_after_cap` first.
    """

    max_attempts: int = 3
    """The first attempt counts."""
    backoff: Backoff = field(default_factory=Backoff.exponential)
    _: KW_ONLY
    retry_on: RetryOn = "classified"
    give_up_on: Collection[Trigger] = ()
    per_code_max_attempts: Mapping[str, int] = field(default_factory=dict[str, int])
    respect_retry_after: bool = True
    retry_after_cap: timedelta | float = 300.0
    snooze_max: int = 1000
    """How often a stage may snooze in one round before the next snooze counts as a failure."""

    def __post_init__(self) -> None:
        whole("RetryPolicy.max_attempts", self.max_attempts, minimum=1, fix="1 means: try once, never again.")
        instance("RetryPolicy.backoff", self.backoff, Backoff, fix="Use Backoff.exponential(1, cap=60).")
        if not isinstance(self.retry_on, AddedTriggers) and (
            not isinstance(self.retry_on, str) or self.retry_on not in {"classified", "all", "none"}
        ):
            object.__setattr__(self, "retry_on", _triggers("RetryPolicy.retry_on", self.retry_on))
        object.__setattr__(self, "give_up_on", _triggers("RetryPolicy.give_up_on", self.give_up_on))
        if not isinstance(self.per_code_max_attempts, Mapping):
            raise ConfigurationError(
                field="RetryPolicy.per_code_max_attempts",
                value=self.per_code_max_attempts,
                rule="must be a mapping of codes to attempts",
                fix='{"IO_ERROR": 2} is one retry for that code.',
            )
        object.__setattr__(self, "per_code_max_attempts", dict(self.per_code_max_attempts))
        flag("RetryPolicy.respect_retry_after", self.respect_retry_after)
        for code, limit in self.per_code_max_attempts.items():
            whole(f"RetryPolicy.per_code_max_attempts[{code!r}]", limit, minimum=1, fix="2 is one retry.")
        object.__setattr__(
            self, "retry_after_cap", seconds("RetryPolicy.retry_after_cap", self.retry_after_cap)
        )
        whole("RetryPolicy.snooze_max", self.snooze_max, minimum=0, fix="0 forbids snoozing.")
        _refuse_mistyped("RetryPolicy", self, (), similar=SURELY)

    def check_codes(self, where: str, own: Collection[str]) -> None:
        """Refuse mistyped codes, when the own codes of the application are known.

        A name in a list may be a provider's, so it is refused only if it resembles a known code; a limit is for a code alone.
        """
        _refuse_mistyped(where, self, own, similar=PERHAPS)
        for code in self.per_code_max_attempts:
            if code not in CODES and code not in own:
                raise ConfigurationError(
                    field=f"{where}.per_code_max_attempts",
                    value=code,
                    rule="must name canonical codes or codes of the pipeline's CodeSet",
                    fix=did_you_mean(str(code), (*CODES, *own)) or "docs/failures.md lists the codes.",
                )

    def allows(self, failure: Failure) -> bool:
        """Return whether `retry_on` retries this failure; `give_up_on` and the limits are checked elsewhere."""
        if isinstance(self.retry_on, str):
            return self.retry_on == "all" or (self.retry_on == "classified" and failure.retryable)
        is_added = isinstance(self.retry_on, AddedTriggers)
        return (is_added and failure.retryable) or any(
            _retries(trigger, failure) for trigger in _listed(self.retry_on)
        )

    def gives_up_on(self, failure: Failure) -> bool:
        """Return whether `give_up_on` matches this failure."""
        return any(_matches(trigger, failure) for trigger in self.give_up_on)

    def limit_for(self, failure: Failure) -> int | None:
        """Return how many attempts may fail with this failure's code, if it has a limit of its own."""
        limits = self.per_code_max_attempts
        return limits.get(failure.code, limits.get(failure.canonical, failure.max_attempts))

    def retry_after_delay(self, failure: Failure) -> float | None:
        """Return the delay the dependency asked for, cut to the cap; None when there is none or the policy ignores it."""
        if failure.retry_after is None or not self.respect_retry_after:
            return None
        return min(failure.retry_after, seconds("retry_after_cap", self.retry_after_cap))


def _listed(retry_on: RetryOn) -> tuple[Trigger, ...]:
    """Return what `retry_on` names; nothing for a word."""
    return () if isinstance(retry_on, str) else tuple(retry_on)


def _triggers(field_name: str, given: object) -> tuple[Trigger, ...]:
    fix = 'Write a list such as [429, "NETWORK_TIMEOUT", ConnectionError].'
    if isinstance(given, str) or not isinstance(given, Collection):
        rule = (
            'must be "classified", "all", "none", also(...) or a list'
            if field_name.endswith("retry_on")
            else "must be a list"
        )
        raise ConfigurationError(field=field_name, value=given, rule=rule, fix=fix)
    triggers: list[Trigger] = []
    for trigger in cast("Collection[object]", given):
        if not _is_trigger(trigger):
            rule = "must hold HTTP statuses, codes or exception classes"
            raise ConfigurationError(field=field_name, value=trigger, rule=rule, fix=fix)
        triggers.append(trigger)
    return tuple(triggers)


def _refuse_mistyped(where: str, policy: RetryPolicy, own: Collection[str], *, similar: float) -> None:
    lists = {
        "retry_on": _listed(policy.retry_on),
        "give_up_on": policy.give_up_on,
        "per_code_max_attempts": policy.per_code_max_attempts,
    }
    for option, names in lists.items():
        refuse_mistyped(f"{where}.{option}", names, own, similar=similar)


def _is_trigger(value: object) -> TypeGuard[Trigger]:
    if isinstance(value, type):
        return issubclass(value, BaseException)
    return bool(value) if isinstance(value, str) else is_http_status(value)


def _matches(trigger: Trigger, failure: Failure) -> bool:
    if isinstance(trigger, str):
        return trigger in {failure.code, failure.canonical, failure.category, failure.provider_code}
    if isinstance(trigger, int):
        return trigger == failure.http_status
    return class_name(trigger) in failure.lineage


def _retries(trigger: Trigger, failure: Failure) -> bool:
    if not _matches(trigger, failure):
        return False
    has_answer = failure.http_status is not None or failure.provider_code is not None
    # Many libraries use one exception class for every HTTP error, so a permanent answer overrules the class.
    return not isinstance(trigger, type) or failure.retryable or not has_answer
