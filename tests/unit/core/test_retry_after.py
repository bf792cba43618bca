# SPDX-License-Identifier: Apache-2.0
"""Told delays: read wherever they hide, ignored when they make no sense, never a crash."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import classify
from redrive.core.retry_after import (
    RETRY_AFTER_MAX,
    fold_headers,
    from_attributes,
    from_duration,
    from_headers,
    from_milliseconds,
    plausible,
)
from redrive.core.retry_after import from_retry_after as read

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC).timestamp()


def http_date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("1.5", 1.5),
        ("0", 0),
        (30, 30),
        (2.5, 2.5),
        (timedelta(minutes=2), 120),
        ("34s", 34),
        ("6m0s", 360),
        ("1h2m3s", 3723),
        ("20ms", 0.02),
        ("1d", 86_400),
        (http_date(90), 90),
        ("2026-03-01T12:01:00Z", 60),
        ("2026-03-01T12:01:00+00:00", 60),
        ("2026-03-01T12:01:00", 60),
        (SimpleNamespace(seconds=5, nanos=500_000_000), 5.5),
        (SimpleNamespace(seconds=5), 5),
        (b"12", 12),
        (Decimal("1.5"), 1.5),
        (datetime.fromtimestamp(NOW + 30, UTC), 30),
        ("5, 5", 5),
        ("5, 60,7", 60),
        ("1s, 2m", 120),
    ],
)
def test_every_spelling_is_read(value: object, seconds: float) -> None:
    told = read(value, NOW)

    assert told == pytest.approx(seconds)
    assert type(told) is float


def test_a_delay_is_a_float_even_when_a_rule_gave_an_integer() -> None:
    assert type(plausible(5)) is float


@pytest.mark.untraced
@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "soon",
        "-5",
        -5,
        "nan",
        "inf",
        float("nan"),
        float("inf"),
        "1e309",
        10**400,
        True,
        str(int(RETRY_AFTER_MAX) + 1),
        "99999999999999999999999999",
        "9" * 5_000,
        "5 apples",
        "5s extra",
        "s",
        "5x",
        http_date(-60),
        http_date(RETRY_AFTER_MAX + 60),
        "Tue, 99 Foo 2026 99:99:99 GMT",
        "2026-13-45T99:00:00Z",
        timedelta(days=-1),
        timedelta(days=400),
        [],
        object(),
        b"soon",
        Decimal("NaN"),
        Decimal("1e999999"),
        datetime(2026, 3, 1, 12, 0, 30),  # noqa: DTZ001 - whose clock it is read from, nobody knows
        datetime.fromtimestamp(NOW - 30, UTC),
        "5, soon",
        ",",
        "-5, -6",
    ],
)
def test_nonsense_is_ignored(value: object) -> None:
    assert read(value, NOW) is None


def test_an_http_date_is_measured_against_the_servers_own_clock() -> None:
    skewed = {"date": http_date(3_600), "retry-after": http_date(3_630)}

    assert from_headers(skewed, NOW, is_limit=False) == 30


def test_milliseconds_win_over_seconds() -> None:
    assert from_headers({"retry-after": "9", "retry-after-ms": "1500"}, NOW, is_limit=False) == 1.5
    assert from_headers({"retry-after": "9", "retry-after-ms": "x"}, NOW, is_limit=False) == 9
    assert from_milliseconds("-1") is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ms-retry-after-ms": "1500"}, 1.5),
        ({"x-retry-after": "9"}, 9),
        ({"retry-after": "3", "x-retry-after": "9"}, 3),
        ({"retry-after": "5, 5"}, 5),
        ({"retry-after": "soon", "x-retry-after": "9"}, 9),
    ],
)
def test_a_delay_is_read_under_every_name(headers: dict[str, str], seconds: float) -> None:
    assert from_headers(headers, NOW, is_limit=False) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-reset": "30"}, 30),
        ({"x-ratelimit-reset": "10, 60"}, 60),
        ({"x-ratelimit-reset": f"10, {int(NOW) + 90}"}, 90),
        ({"ratelimit": "limit=100, remaining=0, reset=50"}, 50),
        ({"ratelimit": "limit=100, remaining=7, reset=50"}, 50),
        ({"ratelimit": '"default";r=0;t=50'}, 50),
        ({"ratelimit": '"burst";r=0;t=5, "daily";r=900;t=40000'}, 5),
        ({"ratelimit": '"burst";r=3;t=5, "daily";r=900;t=40'}, 40),
        ({"ratelimit": '"default";r=0;t=-5'}, None),
        ({"ratelimit": '"default";r=0'}, None),
        ({"ratelimit": "nonsense"}, None),
        ({"x-ratelimit-reset": str(int(NOW) + 45)}, 45),
        ({"x-ratelimit-reset": str(int(NOW * 1000) + 45_000)}, 45),
        ({"x-rate-limit-reset": "12"}, 12),
        ({"ratelimit-reset": "12"}, 12),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-remaining-tokens": "149984",
            },
            1,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-03-01T12:00:20Z",
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-requests-reset": "2026-03-01T12:05:00Z",
            },
            20,
        ),
        ({"x-ratelimit-reset": "never"}, None),
        ({"x-ratelimit-reset": str(int(NOW) - 45)}, None),
        ({"x-ratelimit-limit": "12"}, None),
    ],
)
def test_reset_headers_tell_when_the_spent_limit_is_back(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert from_headers(headers, NOW, is_limit=True) == (None if seconds is None else pytest.approx(seconds))


def test_reset_headers_of_an_answer_that_is_no_limit_do_not_count() -> None:
    assert from_headers({"x-ratelimit-reset": "30"}, NOW, is_limit=False) is None


def test_an_attribute_of_the_exception_counts() -> None:
    class Limited(Exception):
        retry_after = "17"

    class Broken(Exception):
        @property
        def retry_after(self) -> float:
            raise RuntimeError("no")

    class Hidden(Exception):
        class _Length:
            @property
            def seconds(self) -> float:
                raise RuntimeError("no")

        retry_after = _Length()

    class Timeless(tzinfo):
        def utcoffset(self, _instant: datetime | None) -> timedelta:
            raise RuntimeError("no")

    class Nowhen(Exception):
        retry_after = datetime(2026, 3, 1, tzinfo=Timeless())  # type: ignore[abstract]  # for the stub alone

    assert from_attributes(Nowhen(), NOW) is None
    assert from_attributes(Limited(), NOW) == 17
    assert from_attributes(Broken(), NOW) is None
    assert from_attributes(Hidden(), NOW) is None
    assert from_duration(Hidden.retry_after) is None
    exc = RuntimeError("wrapped")
    exc.retry_delay = 4  # type: ignore[attr-defined]
    exc.__cause__ = TimeoutError()
    assert classify(exc).retry_after == 4


@pytest.mark.parametrize(
    ("headers", "folded"),
    [
        ({"Retry-After": "5"}, {"retry-after": "5"}),
        ([("Retry-After", "5"), (b"X", b"y")], {"retry-after": "5", "x": "y"}),
        (SimpleNamespace(items=lambda: [("A", "b")]), {"a": "b"}),
        ([("a", "1"), ("A", "2")], {"a": "1"}),
        ({"a": 5, 6: "b"}, {}),
        (None, {}),
        (42, {}),
        (["not a pair"], {}),
    ],
)
def test_headers_of_any_library_are_folded(headers: object, folded: dict[str, str]) -> None:
    assert fold_headers(headers) == folded


def test_headers_that_cannot_be_read_tell_nothing() -> None:
    class Broken:
        def items(self) -> object:
            raise OSError("gone")

    assert fold_headers(Broken()) == {}


values = st.one_of(
    st.text(max_size=60),
    st.integers(),
    st.floats(),
    st.none(),
    st.binary(max_size=20),
    st.timedeltas(),
    st.decimals(),
    st.datetimes(timezones=st.none() | st.timezones()),
)


@pytest.mark.untraced
@given(values, st.floats(0, 4e9))
def test_whatever_is_told_the_answer_is_none_or_a_sane_delay(value: object, now: float) -> None:
    for told in (read(value, now), from_duration(value), from_milliseconds(value)):
        assert told is None or 0 <= told <= RETRY_AFTER_MAX


@pytest.mark.untraced
@given(
    st.dictionaries(
        st.sampled_from(
            ["retry-after", "retry-after-ms", "date", "x-ratelimit-reset", "ratelimit-reset-x", "ratelimit"]
        ),
        st.text(max_size=40),
    )
)
def test_headers_never_crash(headers: dict[str, str]) -> None:
    told = from_headers(headers, NOW, is_limit=True)

    assert told is None or 0 <= told <= RETRY_AFTER_MAX
