# SPDX-License-Identifier: Apache-2.0
"""Texts made to be slow: the cost grows with the length and no faster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from redrive.redaction import redact_text
from redrive.redaction.named.assignments import DECIDED_MAX

SMALL = 6_250
GROWTH = 16
RATIO_MAX = 64.0
"""Linear is 16 and quadratic 256; what a busy machine adds stays below this."""
TRIES = 3
"""A text that seems slow is measured again: what is slow in itself is slow every time."""

UNITS = [
    *("a@", "@", "a@a.a.", "@a.", "-----BEGIN ", "-----BEGIN RSA PRIVATE" + " KEY-----", "AAAA\n-----END PRIVATE" + " KEY-----", "-", "1", "4", "4111 1111 "),
    *('"', "'", "\\", '\\"', "password=", 'password="', "password: ", 'password\\": \\"', "password=,", "password=&a", "password is ", "password: |\n x\n"),
    *("eyJ", "eyJ.", "eyJ-", "eyJabcdefghij.", '{"a":', "{", "[", "(", "QUJD", "abcdefgh", "0 -", "1-", "1 ", "1.", "+1", "(5", "GB82 ", "AA11", "A", "DE1", "1 23 ", "1230 2A "),
    *("://", "://a:", "x://a:b@", "%3A%2F%2F", "a%40", "sk-", "ghp_", "xoxb-", "s.", "SG.aaaaaaaaaaaaaaaaa.", "0123456789abcdef", "Q~", "1//0", "1:AA", "AQE"),
    *("key", "sig=", "token ", "authorization: ", "Bearer ", "cookie: a=b; ", "curl ", "curl -u a:b ", "mysql ", "mysql -pa ", "docker ", "machine a login ", "IDENTIFIED "),
    *("<password>", "<password ", "?key=", "&", '  File "a.py", line 3\n    token = x\n', "name: PASSWORD\n value: ", "<redacted:", "<redacted:email>", "<payload:a>"),
    *("password|", "|password|a9b8c7|", "password for a: ", "password (", "password ..", 'password" {\n default = "', "secrets:\n a: b9c8d7E\n", "secrets:\n", "  secrets:\n", '"secrets": {'),
    *("пароль: ", "пароль", "비밀번호는 ", "pin=", "sid=", "a:5432:b:c:d9e8f7\n", ":5432:", "*:*:", ".pgpass:", "a:b9c8d7@h:22 ", "@h:22", "de89 ", "de89", "ab 12 34 56 c ", "nino "),
    *(" -p", " -u a:", "mysql -p ", "echo a | ", "echo a|sudo -S ", "htpasswd -b a ", "docker login ", "--password-stdin", "net use ", " config ", "/bot1", "echo a:b | chpasswd ", "a2b3" * 13 + "-"),
    *("password=<<A\n", "\tTRUE\t/", "a\tTRUE\t/\tTRUE\t1\tb\tc9\n", "ConvertTo-SecureString a "),
    *(" ", "\n", "a.", "a" * 79 + "\n", "É", "\u0130", "\U000f0000", "2024-01-01 12:00:00 ", "123e4567-e89b-12d3-a456-426614174000 ", "token=" + "A" * 50 + " "),
]  # fmt: skip


LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIGNS = LETTERS + LETTERS.upper() + "0123456789"
STEMS = tuple(
    "password pwd pw pass secret token api_key apiKey APIKEY key auth cookie session_id sig dsn jwt otp salt code X-Api-Key authorization primary_key token_count".split()
)


class Drawn:
    """Telling names and values, no two alike."""

    def __init__(self) -> None:
        self._chance = random.Random(11)

    def one_of(self, *choices: str) -> str:
        return self._chance.choice(choices)

    def word(self, shortest: int, longest: int, signs: str = SIGNS) -> str:
        return "".join(self._chance.choices(signs, k=self._chance.randint(shortest, longest)))

    def name(self) -> str:
        stem = self.one_of(*STEMS)
        ends = f"{stem}{self.word(1, 3, '0123456789')}"
        return self.one_of(
            f"{self.word(1, 4, LETTERS)}_{stem}_{self.word(1, 3)}", ends, f"{self.word(2, 5)}.{stem}", stem
        )

    def value(self) -> str:
        plain = self.one_of(self.word(4, 12), self.word(12, 40), self.word(3, 9, LETTERS))
        return self.one_of(
            plain, plain, self.word(6, 14, SIGNS + "!$%^*+-_./"), f"{self.word(3, 6, LETTERS)}.{plain}"
        )

    def text(self, unit: Callable[[Drawn], str], length: int) -> str:
        pieces: list[str] = []
        size = 0
        while size < length:
            pieces.append(unit(self))
            size += len(pieces[-1])
        return "".join(pieces)[:length]


FAMILIES: dict[str, Callable[[Drawn], str]] = {
    "lines": lambda drawn: f"{drawn.name()}={drawn.value()}\n",
    "short lines": lambda drawn: f"{drawn.one_of('pw', 'key', 'otp', 'pass')}{drawn.word(1, 2)}={drawn.word(4, 6)}\n",
    "one long line": lambda drawn: f"{drawn.name()}={drawn.value()} ",
    "plain words": lambda drawn: f"{drawn.one_of(*STEMS)}={drawn.word(4, 9, LETTERS)}\n",
    "any separator": lambda drawn: drawn.name() + drawn.word(1, 3, "=:;,&| \t/+?!'\"()[]{}<>\\%@#-_.") + drawn.value() + drawn.word(1, 2, "=:;,&| \n"),
    "tight": lambda drawn: drawn.one_of(*STEMS) + drawn.one_of(*"=: ;,&\n") + drawn.word(1, 4) + drawn.one_of(*"=: ;,&\n"),
    "only separators": lambda drawn: drawn.name() + drawn.word(1, 12, "=:"),
    "names without values": lambda drawn: drawn.name() + drawn.one_of(" ", "\n", ", ", ". ", ""),
    "nested JSON": lambda drawn: f'{{"{drawn.name()}": "{drawn.value()}", "a": {{"{drawn.name()}": [1, "{drawn.value()}"]}}, ',
    "JSON in JSON": lambda drawn: f'\\"{drawn.name()}\\": \\"{drawn.value()}\\",',
    "query": lambda drawn: f"{drawn.one_of('?', '&')}{drawn.name()}={drawn.value()}",
    "quoted": lambda drawn: f"{drawn.name()}{drawn.one_of(': ', '=', ' ')}\"{drawn.value()}\" ",
    "unquoted": lambda drawn: f"{drawn.name()}{drawn.one_of(': ', '=', ' = ', ' ')}{drawn.value()}{drawn.one_of(', ', ' ', ';')}",
    "flags": lambda drawn: f"--{drawn.name()} {drawn.value()}\n",
    "elements": lambda drawn: f"<{drawn.name()}>{drawn.value()}</{drawn.name()}>",
    "pairs": lambda drawn: f"('{drawn.name()}', '{drawn.value()}'), ",
    "sentences": lambda drawn: f"the {drawn.name()} {drawn.one_of('is', 'was', 'set to')} {drawn.value()} ",
    "phrases": lambda drawn: f"{drawn.name()}: {drawn.word(3, 8, LETTERS)} {drawn.value()}\n",
    "headers": lambda drawn: f"{drawn.one_of('Authorization: Bearer ', 'Cookie: a=', 'authorization=')}{drawn.value()}\n",
    "source": lambda drawn: f'  File "{drawn.word(2, 4)}.py", line 3\n    {drawn.name()} = {drawn.value()}\n',
}  # fmt: skip


def seconds(text: str) -> float:
    start = time.process_time()
    redact_text(text)
    return time.process_time() - start


def grows_too_fast(text: str) -> bool:
    small = large = float("inf")
    for _ in range(TRIES):
        small, large = min(small, seconds(text[:SMALL])), min(large, seconds(text))
        # A millisecond is added to both, because very short times are mostly noise.
        if (large + 0.001) / (small + 0.001) < RATIO_MAX:
            return False
    return True


@pytest.mark.untraced
def test_the_cost_of_any_repeated_piece_grows_with_the_length_and_no_faster() -> None:
    length = SMALL * GROWTH

    assert [unit for unit in UNITS if grows_too_fast((unit * length)[:length])] == []


@pytest.mark.untraced
@pytest.mark.parametrize("family", FAMILIES)
def test_the_cost_of_random_names_grows_with_their_number_and_no_faster(family: str) -> None:
    assert not grows_too_fast(Drawn().text(FAMILIES[family], SMALL * GROWTH))


@pytest.mark.untraced
def test_a_text_that_costs_the_square_of_its_length_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of the places are each read to the end of the text: a few tenths of a second."""

    def square(text: str) -> str:
        return max(text[at:].lower() for at in range(0, len(text), 8))

    monkeypatch.setattr(f"{__name__}.redact_text", square)

    assert grows_too_fast("a" * SMALL * GROWTH)


def test_a_long_line_around_a_secret_is_cheap_and_safe() -> None:
    secret = "hunter2hunter2"
    text = "x" * 200_000 + f" password={secret} " + "y" * 200_000

    assert secret not in redact_text(text)


def test_a_text_of_nothing_but_telling_names_is_hidden_from_the_line_on_where_judging_ends() -> None:
    lines = "".join(f"password_{place}=hunter{place:05d}x\n" for place in range(3 * DECIDED_MAX))

    redacted = redact_text(lines)

    assert redacted.startswith("password_0=<redacted:password>\npassword_1=<redacted:password>\n")
    assert redacted.endswith("\n<redacted:unjudged>")
    assert "hunter" not in redacted
    assert redacted.count("\n") >= DECIDED_MAX / 2
    assert redact_text(redacted) == redacted


def test_a_long_text_that_repeats_its_names_is_read_to_its_end() -> None:
    text = "token_count=12\n" * (3 * DECIDED_MAX)

    assert redact_text(text) == text
