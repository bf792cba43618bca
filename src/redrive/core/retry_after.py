# SPDX-License-Identifier: Apache-2.0
"""How long the dependency told us to wait, wherever it hid the number.

Understands `Retry-After` (seconds or HTTP date), `retry-after-ms`, the `x-ratelimit-reset*` family, gRPC pushback, protobuf-style
durations, and attributes of exceptions. A value that is malformed, negative, not finite or beyond a year is ignored: servers are
never trusted with our schedule, and nothing here raises. The cap on what we accept is the policy's business, not this module's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, cast

TOLD_MAX: Final = 365 * 24 * 3600.0
"""Seconds; a told delay beyond a year is nonsense and is ignored."""

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
_RESET_PREFIXES: Final = ("x-ratelimit-reset", "x-rate-limit-reset", "ratelimit-reset")
_ANTHROPIC_RESET: Final = re.compile(r"anthropic-ratelimit-([a-z-]+)-reset")


def sane(seconds: float | None) -> float | None:
    """Return the delay if it is one that can be meant, else None."""
    if seconds is None or not math.isfinite(seconds) or not 0 <= seconds <= TOLD_MAX:
        return None
    return seconds


def fold_headers(headers: object) -> dict[str, str]:
    """Read any library's headers into a plain dict with lower-case names; what cannot be read is left out."""
    folded: dict[str, str] = {}
    for name, value in _pairs(headers):
        text_name, text_value = _text(name), _text(value)
        if text_name is not None and text_value is not None:
            folded.setdefault(text_name.lower(), text_value)
    return folded


def from_headers(headers: Mapping[str, str], now: float, *, is_limit: bool) -> float | None:
    """Return the told delay in folded headers.

    `x-ratelimit-reset*` stands on every answer of many services, so it counts only when `is_limit` says that a limit was hit.
    """
    told = from_milliseconds(headers.get("retry-after-ms"))
    if told is None:
        told = from_retry_after(headers.get("retry-after"), _server_now(headers, now))
    if told is None and is_limit:
        told = _from_resets(headers, now)
    return told


def from_retry_after(value: object, now: float) -> float | None:
    """Read a `Retry-After` value: seconds, an HTTP date, or a number or timedelta that a library already parsed."""
    seconds = from_duration(value)
    if seconds is not None or not isinstance(value, str):
        return seconds
    instant = _instant(value)
    return None if instant is None else sane(instant - now)


def from_milliseconds(value: object) -> float | None:
    """Read a count of milliseconds, as `retry-after-ms` and `grpc-retry-pushback-ms` carry it."""
    number = _number(value)
    return None if number is None else sane(number / 1000)


def from_duration(value: object) -> float | None:
    """Read a length of time: a number of seconds, a timedelta, "1.5", "34s", "6m0s", or an object with seconds and nanos."""
    if isinstance(value, timedelta):
        return sane(value.total_seconds())
    number = _number(value)
    if number is not None:
        return sane(number)
    if isinstance(value, str):
        return _from_units(value.strip().lower())
    seconds, nanos = _number(getattr(value, "seconds", None)), _number(getattr(value, "nanos", None))
    return None if seconds is None else sane(seconds + (nanos or 0.0) / 1e9)


def from_attributes(exc: BaseException, now: float) -> float | None:
    """Read a delay that the exception itself carries as an attribute, such as `retry_after`."""
    for name in _ATTRIBUTES:
        value = _attribute(exc, name)
        told = None if value is None else from_retry_after(value, now)
        if told is not None:
            return told
    return None


def _attribute(exc: BaseException, name: str) -> object:
    try:
        return getattr(exc, name, None)
    except Exception:  # noqa: BLE001 - a property of a foreign class may raise anything; then it tells us nothing.
        return None


def _pairs(headers: object) -> Iterable[tuple[object, object]]:
    try:
        items = getattr(headers, "items", None)
        source: object = items() if callable(items) else headers
        listed = list(cast("Iterable[object]", source)) if isinstance(source, Iterable) else []
    except Exception:  # noqa: BLE001 - headers of a foreign class; unreadable ones tell us nothing.
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
        return float(value) if abs(value) <= 1e18 else None
    if isinstance(value, str) and len(value) <= _TEXT_MAX and _NUMBER.fullmatch(value.strip()):
        return float(value)
    return None


def _from_units(text: str) -> float | None:
    """Read "6m0s"-style text, whose parts must cover it whole."""
    parts = _DURATION_PART.findall(text[:_TEXT_MAX])
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        return None
    return sane(sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in parts))


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


def _server_now(headers: Mapping[str, str], now: float) -> float:
    """Measure an HTTP date against the server's own `Date`, so that a skewed clock here does not matter."""
    return _instant(headers.get("date", "")) or now


def _from_resets(headers: Mapping[str, str], now: float) -> float | None:
    """Take the longest reset among the limits that are spent; if none says how much remains, the longest of all."""
    spent: list[float] = []
    rest: list[float] = []
    for name, value in headers.items():
        remaining_name = _remaining_name(name)
        told = _from_reset(value, now) if remaining_name else None
        if remaining_name is None or told is None:
            continue
        (spent if _number(headers.get(remaining_name)) == 0 else rest).append(told)
    return max(spent or rest, default=None)


def _remaining_name(name: str) -> str | None:
    """Return the header that says how much of the limit behind this reset header remains; None if it is no reset header."""
    if name.startswith(_RESET_PREFIXES):
        return name.replace("-reset", "-remaining", 1)
    named = _ANTHROPIC_RESET.fullmatch(name)
    return f"anthropic-ratelimit-{named[1]}-remaining" if named else None


def _from_reset(value: str, now: float) -> float | None:
    number = _number(value)
    if number is None:
        return from_retry_after(value, now)
    if number >= _EPOCH_MILLISECONDS_MIN:
        return sane(number / 1000 - now)
    return sane(number - now if number >= _EPOCH_SECONDS_MIN else number)
