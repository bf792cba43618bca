# SPDX-License-Identifier: Apache-2.0
"""Texts made to be slow: the cost grows with the length and no faster."""

from __future__ import annotations

import time

import pytest

from redrive.core.redact import redact_text

SMALL = 25_000
GROWTH = 4
RATIO_MAX = 12.0
"""Linear is 4 and quadratic 16; what a busy machine adds stays below this."""

UNITS = [
    *("a@", "@", "a@a.a.", "@a.", "-----BEGIN ", "-----BEGIN RSA PRIVATE" + " KEY-----", "AAAA\n-----END PRIVATE" + " KEY-----", "-", "1", "4", "4111 1111 "),
    *('"', "'", "\\", '\\"', "password=", 'password="', "password: ", 'password\\": \\"', "password=,", "password=&a", "password is ", "password: |\n x\n"),
    *("eyJ", "eyJ.", "eyJ-", "eyJabcdefghij.", '{"a":', "{", "[", "(", "QUJD", "abcdefgh", "0 -", "1-", "1 ", "1.", "+1", "(5", "GB82 ", "AA11", "A", "DE1", "1 23 ", "1230 2A "),
    *("://", "://a:", "x://a:b@", "%3A%2F%2F", "a%40", "sk-", "ghp_", "xoxb-", "s.", "SG.aaaaaaaaaaaaaaaaa.", "0123456789abcdef", "Q~", "1//0", "1:AA", "AQE"),
    *("key", "sig=", "token ", "authorization: ", "Bearer ", "cookie: a=b; ", "curl ", "curl -u a:b ", "mysql ", "mysql -pa ", "docker ", "machine a login ", "IDENTIFIED "),
    *("<password>", "<password ", "?key=", "&", '  File "a.py", line 3\n    token = x\n', "name: PASSWORD\n value: ", "<redacted:", "<redacted:email>", "<payload:a>"),
    *(" ", "\n", "a.", "a" * 79 + "\n", "É", "\u0130", "\U000f0000", "2024-01-01 12:00:00 ", "123e4567-e89b-12d3-a456-426614174000 ", "token=" + "A" * 50 + " "),
]  # fmt: skip


def seconds(unit: str, length: int) -> float:
    """Return the shortest of three measured times for a text of `length` characters."""
    text = (unit * (length // len(unit) + 1))[:length]
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        redact_text(text)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_four_times_the_text_takes_about_four_times_as_long(unit: str) -> None:
    small = seconds(unit, SMALL)
    large = seconds(unit, SMALL * GROWTH)

    # A millisecond is added to both, because very short times are mostly noise.
    assert (large + 0.001) / (small + 0.001) < RATIO_MAX


def test_a_long_line_around_a_secret_is_cheap_and_safe() -> None:
    secret = "hunter2hunter2"
    text = "x" * 200_000 + f" password={secret} " + "y" * 200_000

    assert secret not in redact_text(text)
