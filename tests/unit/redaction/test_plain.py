# SPDX-License-Identifier: Apache-2.0
"""What is judged in one look is judged as it would be on a closer one."""

from __future__ import annotations

import itertools
import re

import pytest

from redrive.redaction import redact_text
from redrive.redaction.named import assignments

NAMES = ["db_password", "pw", "secret", "api_key", "key", "my_key_x", "auth", "cookie", "authorization", "token_count", "primary_key", "secret9", "code"]  # fmt: skip
VALUES = [
    *("hunter2hunter", "12", "7", "0x1f", "a1b2", "abc1", "abcdefgh", "secret", "newtoken", "xxx", "xxxx1", "none", "argon2id", "str", "bytes"),
    *("Zr9xK3hdF0aAq2Lm", "aaaaaaaaaaaaaaaaaaaa", "d41d8cd98f00b204e9800998ecf8427e", "b", "Secret", "required", "\U000f0000", "<redacted:secret>"),
]  # fmt: skip
CARRIERS = [
    *("{n}={v}", "{n}: {v}", "{n} = {v}", '"{n}": "{v}"', "'{n}':'{v}'", '\\"{n}\\": \\"{v}\\"', '{n}="{v}"', '{n}="{v}', "{n}='{v}\""),
    *("x {n}: {v}", "?{n}={v}", "arn:aws:{n}: {v}", 'print("{n}="{v}")', '  File "a.py", line 3\n    {n} = {v}', "API {n}: {v}"),
]  # fmt: skip
ENDS = [
    "",
    "\n",
    " ",
    " and more",
    " = 1",
    " | None = 2",
    ", x",
    ",x",
    ";",
    "; y=2",
    "(",
    ")",
    "&a=b",
    " more=1",
    ".",
    "\\n",
]


# Every name with every carrier, every value and every end; and all values with all ends.
TEXTS = [
    carrier.format(n=name, v=value) + ENDS[(at + number) % len(ENDS)]
    for at, (name, carrier) in enumerate(itertools.product(NAMES, CARRIERS))
    for number, value in enumerate(VALUES)
]


def test_one_look_says_what_a_closer_look_says(monkeypatch: pytest.MonkeyPatch) -> None:
    in_one_look = [redact_text(text) for text in TEXTS]

    monkeypatch.setattr(assignments, "PLAIN", re.compile("(?!)"))
    on_a_closer_look = [redact_text(text) for text in TEXTS]

    assert dict(zip(TEXTS, in_one_look, strict=True)) == dict(zip(TEXTS, on_a_closer_look, strict=True))


def test_every_value_stands_before_every_end() -> None:
    assert {
        (at % len(VALUES), (at // len(VALUES) + at % len(VALUES)) % len(ENDS)) for at in range(len(TEXTS))
    } == set(itertools.product(range(len(VALUES)), range(len(ENDS))))
