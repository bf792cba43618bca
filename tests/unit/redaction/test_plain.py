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


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("name", NAMES)
def test_one_look_says_what_a_closer_look_says(
    name: str, carrier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [carrier.format(n=name, v=value) + end for value, end in itertools.product(VALUES, ENDS)]
    in_one_look = [redact_text(text) for text in texts]

    monkeypatch.setattr(assignments, "PLAIN", re.compile("(?!)"))

    assert in_one_look == [redact_text(text) for text in texts]
