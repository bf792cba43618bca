# SPDX-License-Identifier: Apache-2.0
"""Find the delay that a dependency asks for before the next try.

Reads `Retry-After` (seconds or HTTP date), `retry-after-ms`, the `x-ratelimit-reset*` family and `RateLimit`, gRPC pushback,
protobuf-style durations, and attributes of exceptions. A value that is malformed, negative, not finite or beyond a year is
ignored: servers are not trusted with our schedule, and nothing here raises. The policy sets the cap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Final, cast

RETRY_AFTER_MAX: Final = 365 * 24 * 3600.0
"""Seconds; a delay beyond a year is implausible and is ignored."""

_TEXT_MAX: Final = 100
_EPOCH_SECONDS_MIN: Final = 1e9
_EPOCH_MILLISECONDS_MIN: Final = 1e12
_NUMBER: Final = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?")
_DURATION_PART: Final = re.compile(r"(\d{1,15}(?:\.\d{1,12})?)(ns|us|µs|ms|s|m|h|d)")
_UNIT_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_ATTRIBUTES: Final = ("retry_after", "retry_after_seconds", "retry_delay", "retry_in")
_DELAY_NAMES: Final = ("retry-after", "x-retry-after")
_MILLISECOND_NAMES: Final = ("retry-after-ms", "x-ms-retry-after-ms")
_RESET_PREFIXES: Final = ("x-ratelimit-reset", "x-rate-limit-reset", "ratelimit-reset")
_ANTHROPIC_RESET: Final = re.compile(r"anthropic-ratelimit-([a-z-]+)-reset")
# `RateLimit: limit=100, remaining=0, reset=50` of the IETF's older drafts, `RateLimit: "default";r=0;t=50` of the newer ones.
_LIMIT_PART: Final = re.compile(r"\b(r|t|remaining|reset)\s{0,5}=\s{0,5}(\d{1,15})\b")
_LIMITS_TEXT_MAX: Final = 1000


def plausible(seconds: float | None) -> float | None:
    """Return the delay if it is between 0 and a year, else None."""
    return None if seconds is None or not 0 <= seconds <= RETRY_AFTER_MAX else float(seconds)


def fold_headers(headers: object) -> dict[str, str]:
    """Convert any library's headers to a dict with lower-case names; leave out what cannot be read."""
    folded: dict[str, str] = {}
    for name, value in _pairs(headers):
        text_name, text_value = _text(name), _text(value)
        if text_name is not None and text_value is not None:
            folded.setdefault(text_name.lower(), text_value)
    return folded


def from_headers(headers: Mapping[str, str], now: float, *, is_limit: bool) -> float | None:
    """Return the delay in folded headers.

    Many services send `x-ratelimit-reset*` with every response, so it counts only when a limit was hit (`is_limit`).
    """
    for name in _MILLISECOND_NAMES:
        delay = from_milliseconds(headers.get(name))
        if delay is not None:
            return delay
    for name in _DELAY_NAMES:
        if name in headers:
            # By the server's own clock if it sent its `Date`, so that a skewed clock here does not matter.
            delay = from_retry_after(headers[name], _instant(headers.get("date", "")) or now)
            if delay is not None:
                return delay
    return _from_resets(headers, now) if is_limit else None


def from_retry_after(value: object, now: float) -> float | None:
    """Read a `Retry-After` value: seconds, an HTTP date, or a number, timedelta or instant that a library already parsed.

    A header that was sent twice arrives as "5, 60": the longest delay counts, if every part is a delay.
    """
    if isinstance(value, datetime):
        # Without a time zone it is ambiguous.
        return None if value.utcoffset() is None else plausible(value.timestamp() - now)
    text = _text(value)
    seconds = from_duration(value if text is None else text)
    if seconds is not None or text is None:
        return seconds
    instant = _instant(text)
    return _longest(text, from_duration) if instant is None else plausible(instant - now)


def from_milliseconds(value: object) -> float | None:
    """Read a count of milliseconds, as `retry-after-ms` and `grpc-retry-pushback-ms` carry it."""
    number = _number(value)
    return None if number is None else plausible(number / 1000)


def from_duration(value: object) -> float | None:
    """Read a duration: a number of seconds, a timedelta, "1.5", "34s", "6m0s", or an object with seconds and nanos."""
    if isinstance(value, timedelta):
        return plausible(value.total_seconds())
    number = _number(value)
    if number is not None:
        return plausible(number)
    if isinstance(value, str):
        return _from_units(value.strip().lower())
    seconds, nanos = _number(_attribute(value, "seconds")), _number(_attribute(value, "nanos"))
    return None if seconds is None else plausible(seconds + (nanos or 0.0) / 1e9)


def from_attributes(exc: BaseException, now: float) -> float | None:
    """Read a delay that the exception itself carries as an attribute, such as `retry_after`."""
    for name in _ATTRIBUTES:
        value = _attribute(exc, name)
        if value is not None:
            with suppress(Exception):
                # A number or a time zone of a foreign class may raise anything.
                delay = from_retry_after(value, now)
                if delay is not None:
                    return delay
    return None


def _attribute(owner: object, name: str) -> object:
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - a property of a foreign class may raise anything.
        return None


def _pairs(headers: object) -> Iterable[tuple[object, object]]:
    try:
        items = getattr(headers, "items", None)
        source: object = items() if callable(items) else headers
        listed = list(cast("Iterable[object]", source)) if isinstance(source, Iterable) else []
    except Exception:  # noqa: BLE001 - headers of a foreign class may raise anything; then there are none.
        return []
    pairs = (cast("tuple[object, ...]", pair) for pair in listed if isinstance(pair, tuple))
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if -1e18 <= value <= 1e18 else None
    if isinstance(value, Decimal):
        return float(value) if value.is_finite() else None
    if isinstance(value, str) and len(value) <= _TEXT_MAX and _NUMBER.fullmatch(value.strip()):
        return float(value)
    return None


def _from_units(text: str) -> float | None:
    """Read a text such as "6m0s"; its parts must cover all of it."""
    parts = _DURATION_PART.findall(text[:_TEXT_MAX])
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        return None
    return plausible(sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in parts))


def _instant(text: str) -> float | None:
    """Read an HTTP date or an RFC 3339 timestamp as seconds since the epoch."""
    stripped = text.strip()
    if not stripped or len(stripped) > _TEXT_MAX:
        return None
    try:
        parsed = (
            datetime.fromisoformat(stripped) if stripped[0].isdigit() else parsedate_to_datetime(stripped)
        )
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _longest(text: str, read: Callable[[str], float | None]) -> float | None:
    """Read a header that was sent more than once and joined by commas."""
    parts = text.split(",") if len(text) <= _TEXT_MAX else []
    delays = [seconds for seconds in map(read, parts) if seconds is not None]
    return max(delays) if delays and len(delays) == len(parts) else None


def _from_resets(headers: Mapping[str, str], now: float) -> float | None:
    """Return the longest reset among the spent limits; if none is known to be spent, the longest of all."""
    spent: list[float] = []
    rest: list[float] = []
    for name, value in headers.items():
        remaining_name = _remaining_name(name)
        delay = _from_reset(value, now) if remaining_name else None
        if remaining_name is None or delay is None:
            continue
        (spent if _number(headers.get(remaining_name)) == 0 else rest).append(delay)
    for is_spent, delay in _limits(headers.get("ratelimit", ""), now):
        (spent if is_spent else rest).append(delay)
    return max(spent or rest, default=None)


def _limits(text: str, now: float) -> Iterator[tuple[bool, float]]:
    """Yield the limits of a `RateLimit` header: whether each is spent, and the seconds until its reset."""
    whole = text[:_LIMITS_TEXT_MAX]
    for limit in [whole] if "reset" in whole else whole.split(","):
        parts = dict(_LIMIT_PART.findall(limit))
        delay = _from_reset(parts.get("t") or parts.get("reset") or "", now)
        if delay is not None:
            yield (parts.get("r") or parts.get("remaining")) == "0", delay


def _remaining_name(name: str) -> str | None:
    """Return the name of the header with what remains of the limit of this reset header; None if it is no reset header."""
    if name.startswith(_RESET_PREFIXES):
        return name.replace("-reset", "-remaining", 1)
    named = _ANTHROPIC_RESET.fullmatch(name)
    return f"anthropic-ratelimit-{named[1]}-remaining" if named else None


def _from_reset(value: str, now: float) -> float | None:
    number = _number(value)
    if number is None:
        delay = from_retry_after(value, now)
        return (
            _longest(value, lambda part: _from_reset(part, now)) if delay is None and "," in value else delay
        )
    if number >= _EPOCH_MILLISECONDS_MIN:
        return plausible(number / 1000 - now)
    return plausible(number - now if number >= _EPOCH_SECONDS_MIN else number)
