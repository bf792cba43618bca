# SPDX-License-Identifier: Apache-2.0
"""How long the dependency told us to wait, wherever it hid the number.

Understands `Retry-After` (seconds or HTTP date), `retry-after-ms`, the `x-ratelimit-reset*` family and `RateLimit`, gRPC pushback,
protobuf-style durations, and attributes of exceptions. A value that is malformed, negative, not finite or beyond a year is
ignored: servers are never trusted with our schedule, and nothing here raises. The cap on what we accept is the policy's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
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
_DELAY_NAMES: Final = ("retry-after", "x-retry-after")
_MILLISECOND_NAMES: Final = ("retry-after-ms", "x-ms-retry-after-ms")
_RESET_PREFIXES: Final = ("x-ratelimit-reset", "x-rate-limit-reset", "ratelimit-reset")
_ANTHROPIC_RESET: Final = re.compile(r"anthropic-ratelimit-([a-z-]+)-reset")
# `RateLimit: limit=100, remaining=0, reset=50` of the IETF's older drafts, `RateLimit: "default";r=0;t=50` of the newer ones.
_LIMIT_PART: Final = re.compile(r"\b(r|t|remaining|reset)\s{0,5}=\s{0,5}(\d{1,15})\b")
_LIMITS_TEXT_MAX: Final = 1000


def sane(seconds: float | None) -> float | None:
    """Return the delay if it is one that can be meant, else None."""
    return None if seconds is None or not 0 <= seconds <= TOLD_MAX else float(seconds)


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
    for name in _MILLISECOND_NAMES:
        told = from_milliseconds(headers.get(name))
        if told is not None:
            return told
    for name in _DELAY_NAMES:
        told = _from_header(headers.get(name), headers, now)
        if told is not None:
            return told
    return _from_resets(headers, now) if is_limit else None


def from_retry_after(value: object, now: float) -> float | None:
    """Read a `Retry-After` value: seconds, an HTTP date, or a number, timedelta or instant that a library already parsed.

    A header that was sent twice arrives as "5, 60": the longest counts, provided that every part is a delay.
    """
    if isinstance(value, datetime):
        return _until(value, now)
    text = _text(value)
    seconds = from_duration(value if text is None else text)
    if seconds is not None or text is None:
        return seconds
    instant = _instant(text)
    return _longest(text, from_duration) if instant is None else sane(instant - now)


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
    seconds, nanos = _number(_attribute(value, "seconds")), _number(_attribute(value, "nanos"))
    return None if seconds is None else sane(seconds + (nanos or 0.0) / 1e9)


def from_attributes(exc: BaseException, now: float) -> float | None:
    """Read a delay that the exception itself carries as an attribute, such as `retry_after`."""
    for name in _ATTRIBUTES:
        told = _from_attribute(exc, name, now)
        if told is not None:
            return told
    return None


def _from_attribute(exc: BaseException, name: str, now: float) -> float | None:
    try:
        value = getattr(exc, name, None)
        return None if value is None else from_retry_after(value, now)
    except Exception:  # noqa: BLE001 - a property, a number or a zone of a foreign class may raise anything; then it tells nothing.
        return None


def _attribute(owner: object, name: str) -> object:
    try:
        return getattr(owner, name, None)
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
        return float(value) if -1e18 <= value <= 1e18 else None
    if isinstance(value, Decimal):
        return float(value) if value.is_finite() else None
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


def _until(instant: datetime, now: float) -> float | None:
    """Read an instant; one without a zone could be anybody's clock and tells nothing."""
    return None if instant.utcoffset() is None else sane(instant.timestamp() - now)


def _longest(text: str, read: Callable[[str], float | None]) -> float | None:
    """Read a header that was sent more than once and joined by commas."""
    parts = text.split(",") if len(text) <= _TEXT_MAX else []
    told = [seconds for seconds in map(read, parts) if seconds is not None]
    return max(told) if told and len(told) == len(parts) else None


def _from_header(value: str | None, headers: Mapping[str, str], now: float) -> float | None:
    if value is None:
        return None
    seconds = from_duration(value)
    return from_retry_after(value, _server_now(headers, now)) if seconds is None else seconds


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
    for is_spent, told in _limits(headers.get("ratelimit", ""), now):
        (spent if is_spent else rest).append(told)
    return max(spent or rest, default=None)


def _limits(text: str, now: float) -> Iterator[tuple[bool, float]]:
    """Yield the limits that a `RateLimit` header lists: whether each is spent, and how long until it is back."""
    whole = text[:_LIMITS_TEXT_MAX]
    for limit in [whole] if "reset" in whole else whole.split(","):
        parts = dict(_LIMIT_PART.findall(limit))
        told = _from_reset(parts.get("t") or parts.get("reset") or "", now)
        if told is not None:
            yield (parts.get("r") or parts.get("remaining")) == "0", told


def _remaining_name(name: str) -> str | None:
    """Return the header that says how much of the limit behind this reset header remains; None if it is no reset header."""
    if name.startswith(_RESET_PREFIXES):
        return name.replace("-reset", "-remaining", 1)
    named = _ANTHROPIC_RESET.fullmatch(name)
    return f"anthropic-ratelimit-{named[1]}-remaining" if named else None


def _from_reset(value: str, now: float) -> float | None:
    number = _number(value)
    if number is None:
        told = from_retry_after(value, now)
        return _longest(value, lambda part: _from_reset(part, now)) if told is None and "," in value else told
    if number >= _EPOCH_MILLISECONDS_MIN:
        return sane(number / 1000 - now)
    return sane(number - now if number >= _EPOCH_SECONDS_MIN else number)
