# SPDX-License-Identifier: Apache-2.0
"""Generators of personal facts with valid check digits, drawn from a seed: nobody's, but shaped like somebody's."""

from __future__ import annotations

import string

from .drawn_secrets import Draw, Format, body

IBANS = {
    "DE": "n18",
    "FR": "n10c11n2",
    "GB": "a4n14",
    "NL": "a4n10",
    "ES": "n20",
    "CH": "n5c12",
    "BE": "n12",
    "PL": "n24",
    "NO": "n11",
}


def digits(draw: Draw, count: int) -> str:
    """Return `count` random digits."""
    return "".join(draw.choice(string.digits) for _ in range(count))


def with_luhn(prefix: str, length: int, draw: Draw) -> str:
    """Return a card number of `length` digits that starts with `prefix`."""
    partial = prefix + digits(draw, length - len(prefix) - 1)
    total = 0
    for place, sign in enumerate(reversed(partial)):
        doubled = int(sign) * (2 if place % 2 == 0 else 1)
        total += doubled - 9 if doubled > 9 else doubled
    return partial + str(-total % 10)


def card(draw: Draw) -> str:
    """Return a card number of a common issuer, bare or in groups."""
    prefix, length = draw.choice(
        [
            ("4", 16),
            ("51", 16),
            ("55", 16),
            ("2221", 16),
            ("34", 15),
            ("37", 15),
            ("6011", 16),
            ("36", 14),
            ("3530", 16),
            ("62", 16),
        ]
    )
    number = with_luhn(prefix, length, draw)
    sign = draw.choice(["", " ", "-"])
    if length == 16:
        return sign.join(number[at : at + 4] for at in range(0, 16, 4))
    return sign.join((number[:4], number[4:10], number[10:]))


def iban(draw: Draw) -> str:
    """Return an IBAN with valid check digits, compact or in groups of four."""
    country = draw.choice(sorted(IBANS))
    account = ""
    shape = IBANS[country]
    alphabets = {"n": string.digits, "a": string.ascii_uppercase, "c": string.digits + string.ascii_uppercase}
    at = 0
    while at < len(shape):
        end = at + 1
        while end < len(shape) and shape[end].isdigit():
            end += 1
        account += "".join(draw.choice(alphabets[shape[at]]) for _ in range(int(shape[at + 1 : end])))
        at = end
    number = int("".join(str(int(sign, 36)) for sign in account + country + "00"))
    compact = f"{country}{98 - number % 97:02d}{account}"
    return (
        compact
        if draw.random() < 0.5
        else " ".join(compact[place : place + 4] for place in range(0, len(compact), 4))
    )


def ssn(draw: Draw) -> str:
    """Return a US social security number."""
    return f"{draw.randrange(1, 666):03d}-{draw.randrange(1, 100):02d}-{draw.randrange(1, 10000):04d}"


def rrn(draw: Draw) -> str:
    """Return a Korean resident number, with a check digit or, for those born since October 2020, without."""
    if draw.random() < 0.3:
        return f"2{draw.randrange(1, 5)}{draw.randrange(1, 13):02d}{draw.randrange(1, 29):02d}-{draw.choice('34')}{digits(draw, 6)}"
    first = f"{draw.randrange(40, 100)}{draw.randrange(1, 13):02d}{draw.randrange(1, 29):02d}{draw.choice('12')}{digits(draw, 5)}"
    total = sum(
        int(sign) * weight for sign, weight in zip(first, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5), strict=True)
    )
    return f"{first[:6]}-{first[6:]}{(11 - total % 11) % 10}"


def nino(draw: Draw) -> str:
    """Return a British national insurance number."""
    number = f"{draw.choice('ABCEHJLMPRSTWXYZ')}{draw.choice('ABCEHJLMPRSTWXY')}{digits(draw, 6)}{draw.choice('ABCD')}"
    return (
        number
        if draw.random() < 0.5
        else " ".join((number[:2], number[2:4], number[4:6], number[6:8], number[8:]))
    )


def german_tax_id(draw: Draw) -> str:
    """Return a German tax id: nine different digits, one of them twice, and a check digit."""
    signs = draw.sample("0123456789", 9)
    signs.insert(draw.randrange(1, 9), draw.choice(signs))
    while signs[0] == "0":
        draw.shuffle(signs)
    product = 10
    for sign in signs:
        total = (int(sign) + product) % 10 or 10
        product = total * 2 % 11
    number = "".join(signs) + str((11 - product) % 10)
    return number if draw.random() < 0.5 else f"{number[:2]} {number[2:5]} {number[5:8]} {number[8:]}"


def nir(draw: Draw) -> str:
    """Return a French social security number with its key."""
    department = draw.choice(["75", "13", "69", "2A", "2B", "33"])
    first = f"{draw.choice('12')}{draw.randrange(100):02d}{draw.randrange(1, 13):02d}{department}{digits(draw, 3)}{draw.randrange(1, 1000):03d}"
    key = 97 - int(first.replace("2A", "19").replace("2B", "18")) % 97
    if draw.random() < 0.5:
        return f"{first}{key:02d}"
    return " ".join((first[0], first[1:3], first[3:5], first[5:7], first[7:10], first[10:], f"{key:02d}"))


def email(draw: Draw) -> str:
    """Return an e-mail address."""
    local = draw.choice(["{}", "{}.smith", "a+{}", "{}_x", "{}-y", "o.{}"]).format(
        body(draw, string.ascii_lowercase + string.digits, 6)
    )
    return f"{local}@{draw.choice(['example.com', 'mail.example.co.uk', 'firma.de', 'sub-domain.example.org', 'ex.io', 'EXAMPLE.COM'])}"


PHONES = (
    "+1 415 NNN NNNN", "+1-415-NNN-NNNN", "+1 (415) NNN-NNNN", "+1415NNNNNNN", "+1.415.NNN.NNNN", "(415) NNN-NNNN", "415-NNN-NNNN", "1-800-NNN-NNNN",
    "(555) 123-NNNN", "010-NNNN-NNNN", "010 NNNN NNNN", "010.NNNN.NNNN", "02-NNN-NNNN", "02-NNNN-NNNN", "031-NNN-NNNN", "+82-10-NNNN-NNNN", "+82 10 NNNN NNNN",
    "+8210NNNNNNNN", "+82 2 NNN NNNN", "020 7NNN NNNN", "07700 9NNNNN", "07700 9NN NNN", "+44 20 7NNN NNNN", "+44 7700 9NNNNN", "+447700 9NNNNN", "+44 (0)20 7NNN NNNN",
    "0161 4NN NNNN", "01632 9NNNNN", "030 NNNNNNNN", "030/NNNNNNN", "0171-NNNNNNN", "0171 NNNNNNN", "089 / NNNNNN", "+49 30 NNNNNNN", "+49 (0) 30 NNNNNN",
    "+49 171 NNNNNNN", "+49-89-NNNNNN", "+4930NNNNNNN", "01 NN NN NN NN", "06.NN.NN.NN.NN", "06-NN-NN-NN-NN", "+33 6 NN NN NN NN", "+33612NNNNNN", "+33 1 NN NN NN NN",
    "+81 3-NNNN-NNNN", "+86 138 NNNN NNNN", "+91 98NNN NNNNN", "+61 4NN NNN NNN", "+34 6NN NNN NNN", "+39 02 NNNN NNNN", "+31 6 NNNNNNNN", "+55 11 9NNNN-NNNN", "(02) NNN-NNNN", "82-10-NNNN-NNNN", "0044 20 7NNN NNNN", "0049 30 NNNNNNN",
)  # fmt: skip


def phone(draw: Draw) -> str:
    """Return a phone number in one of the written forms."""
    return "".join(draw.choice("23456789") if sign == "N" else sign for sign in draw.choice(PHONES))


PERSONAL: dict[str, Format] = {
    "email": email,
    "phone": phone,
    "card": card,
    "iban": iban,
    "ssn": ssn,
    "rrn": rrn,
    "nino": nino,
    "german tax id": german_tax_id,
    "nir": nir,
}

PERSONAL_CARRIERS = {
    "alone": "{}",
    "log line": "2026-01-02T03:04:05Z ERROR cannot reach {} (attempt 3)",
    "sentence": "The value {}, given by the caller, was refused.",
    "colon": "contact: {}",
    "json": '{{"a": 1, "contact": "{}", "b": [true]}}',
    "repr": "User(name='x', contact='{}', age=3)",
    "equals": "contact={}; retries=3",
    "brackets": "invalid contact ({})",
    "xml": "<contact>{}</contact>",
    "escaped": '{{"body": "{{\\"contact\\": \\"{}\\"}}"}}',
    "end of line": "first line\nvalue {}\nlast line\n",
    "csv": "1,x,{},y",
    "bytes": "b'contact {}\\n'",
}
