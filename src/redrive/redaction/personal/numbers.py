# SPDX-License-Identifier: Apache-2.0
"""Recognise numbers that identify a person or an account: cards, IBANs and national ids by checksum, phone numbers by notation.

Numbers with letters are also searched here. `search.py` finds the numbers of digits only. Of a phone number the groups and
separators decide; digits without separators are one only after a word such as `phone`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from redrive.redaction.placeholders import Sentinels
from redrive.redaction.places import Place, Places

_IBAN_LENGTHS: Final = {
    row[:2]: int(row[2:])
    for row in (
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27"
        " DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22"
        " IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19"
        " MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31"
        " SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
    ).split()
}
_ISSUERS: Final[tuple[tuple[re.Pattern[str], frozenset[int]], ...]] = (
    (re.compile("4"), frozenset({13, 16, 19})),
    (re.compile("5[1-5]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)"), frozenset({16})),
    (re.compile("3[47]"), frozenset({15})),
    (re.compile("6011|64[4-9]|65"), frozenset({16, 17, 18, 19})),
    (re.compile("30[0-5]|309|36|38|39"), frozenset({14})),
    (re.compile("35(?:2[89]|[3-8])"), frozenset({16, 17, 18, 19})),
    (re.compile("62"), frozenset({16, 17, 18, 19})),
    (re.compile("50(?:18|20|38)|5893|6304|67(?:59|6[123])"), frozenset({12, 13, 14, 15, 16, 17, 18, 19})),
)
_LUHN_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_RRN_WEIGHTS: Final = (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)
_MONTH_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
CONTEXT_MAX: Final = 40
"""How far before a number in lower case the words `national insurance` may be."""

# Digits are rarer than letters, so the search starts with them and looks back.
_START: Final = re.compile(r"[0-9](?<=[A-Za-z -].)[0-9](?:(?<=[A-Za-z]{2}..)|(?<=[A-Za-z]{2}[ -]..))")
_IBAN: Final = re.compile(r"[A-Za-z]{2}[0-9]{2}(?:[ .\u00a0\u202f-]?[A-Za-z0-9]){11,32}")
_NINO: Final = re.compile(
    r"(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z](?:[ -]?[0-9]{2}){3}[ -]?[A-D](?![A-Z0-9_])",
    re.IGNORECASE,
)
_NINO_WORD: Final = re.compile(r"\bni(?:no|[ _-]?(?:number|no\b))|insurance", re.IGNORECASE)
_CORSICA: Final = re.compile(
    r"[12][ -]?[0-9]{2}[ -]?[0-9]{2}[ -]?2[ABab][ -]?[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{2}(?![0-9A-Za-z])"
)
_SIGNS: Final = str.maketrans("", "", " .-\u00a0\u202f")


def redact_lettered_numbers(text: str, sentinels: Sentinels) -> str:
    """Replace every number with letters that passes its checksum or shape."""
    return _CORSICAN.redact(sentinels.replace(text, _lettered(text)), sentinels)


def _lettered(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the IBANs and national insurance numbers."""
    done = 0
    for found in _START.finditer(text):
        start = found.start() - (3 if text[found.start() - 1] in " -" else 2)
        before = text[start - 1 : start]
        is_inside = before.isascii() and before.isalnum() and not text.endswith("IBAN", 0, start)
        if start < done or is_inside:
            continue
        kind = "iban"
        end = _iban_end(text, start)
        if end is None and before != "_" and (nino := _NINO.match(text, start)):
            kind = "national-id"
            is_named = _NINO_WORD.search(text, max(0, start - CONTEXT_MAX), start)
            end = nino.end() if is_named or nino[0].isupper() else None
        if end is not None:
            yield start, end, kind
            done = end


def _iban_end(text: str, start: int) -> int | None:
    """Return the end of the IBAN that starts here; None when there is none."""
    found = _IBAN.match(text, start)
    compact = found[0].translate(_SIGNS).upper() if found else ""
    length = _IBAN_LENGTHS.get(compact[:2], 0)
    if found is None or not is_iban(compact[:length]):
        return None
    last = [place for place, sign in enumerate(found[0]) if sign.isalnum()][length - 1]
    return None if found[0][last + 1 : last + 2].isalnum() else start + last + 1


def is_card(digits: str) -> bool:
    """Return whether the digits are a payment card number: issuer prefix, its lengths, and the Luhn check."""
    length = len(digits)
    if not any(length in lengths and prefix.match(digits) for prefix, lengths in _ISSUERS):
        return False
    values = map(int, reversed(digits))
    total = sum(_LUHN_DOUBLED[value] if place % 2 else value for place, value in enumerate(values))
    return total % 10 == 0 and len(set(digits)) > 1


def is_iban(compact: str) -> bool:
    """Return whether the text is an IBAN without spaces: the country's length, and 1 modulo 97."""
    if _IBAN_LENGTHS.get(compact[:2]) != len(compact):
        return False
    return int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1


def is_ssn(digits: str) -> bool:
    """Return whether nine digits are in the ranges of US social security numbers."""
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def is_rrn(digits: str) -> bool:
    """Return whether 13 digits are a Korean resident number: a date, a century digit, and the check digit.

    Numbers issued since October 2020 have no check digit; the birth date alone identifies them.
    """
    month, day = int(digits[2:4]), int(digits[4:6])
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1]:
        return False
    if digits[6] in "3478" and int(digits[:6]) >= 201000:
        return True
    total = sum(int(digit) * weight for digit, weight in zip(digits, _RRN_WEIGHTS, strict=False))
    check = (11 - total % 11) % 10
    # Foreign residents' numbers (century digits 5 to 8) are shifted by two.
    return int(digits[12]) in ((check, (check + 2) % 10) if digits[6] in "5678" else (check,))


def is_clear_rrn(digits: str) -> bool:
    """Return whether 13 digits are a resident number with the check digit, and cannot be milliseconds since 1970.

    Current milliseconds start with 1, later ones with 2.
    """
    total = sum(int(digit) * weight for digit, weight in zip(digits, _RRN_WEIGHTS, strict=False))
    return digits[0] not in "12" and (11 - total % 11) % 10 == int(digits[12]) and is_rrn(digits)


def is_german_tax_id(digits: str) -> bool:
    """Return whether 11 digits are a German tax id: one digit repeated among the first ten, and the check digit."""
    first_ten = digits[:10]
    repeated = [digit for digit in set(first_ten) if first_ten.count(digit) > 1]
    if digits[0] == "0" or len(repeated) != 1 or first_ten.count(repeated[0]) > 3:
        return False
    product = 10
    for digit in first_ten:
        total = (int(digit) + product) % 10 or 10
        product = total * 2 % 11
    return (11 - product) % 10 == int(digits[10])


def is_nir(compact: str) -> bool:
    """Return whether the text is a French social security number without spaces: sex, month, and the key modulo 97."""
    month = int(compact[3:5])
    if compact[0] not in "1234 78" or not (1 <= month <= 12 or 20 <= month <= 42 or month >= 50):
        return False
    # Corsica's departments 2A and 2B count as 19 and 18.
    number = int(compact[:13].upper().replace("2A", "19").replace("2B", "18"))
    return 97 - number % 97 == int(compact[13:])


def _is_corsican(found: re.Match[str]) -> bool:
    return is_nir(found[0].translate(_SIGNS))


_CORSICAN: Final = Places(
    Place(department, "national-id", _CORSICA, None, _is_corsican)
    for department in ("2A", "2B", " 2a ", " 2b ")
)


_INTERNATIONAL: Final = re.compile(
    r"\+[1-9][0-9]{8,14}"
    r"|\+[1-9][0-9]{0,2}([ .-])(?:\(0?\)\1?)?\(?[0-9]{1,5}\)?(?:[ .-]?[0-9]{2,8}){1,5}"
    r"|\+[1-9][0-9]{0,2} ?\([0-9]{1,5}\) ?[0-9]{2,4}(?:[ .-]?[0-9]{2,5}){1,4}"
    r"|\+[1-9][0-9]{1,11}(?:[ -][0-9]{2,8}){1,5}"
)
_NATIONAL: Final = re.compile(
    # North America, with the area code in brackets, or dashes, or points throughout.
    r"(?:1[ .-])?\([2-9][0-9]{2}\) ?[0-9]{3}[ .-][0-9]{4}"
    r"|(?:1-)?[2-9][0-9]{2}-[0-9]{3}-[0-9]{4}|(?:1\.)?[2-9][0-9]{2}\.[0-9]{3}\.[0-9]{4}"
    # Brazil: two digits in brackets.
    r"|\([1-9][0-9]\) ?9?[0-9]{4}-[0-9]{4}"
    # Korea: mobile and area codes, also with the country code but no plus sign.
    r"|82-10-[0-9]{4}-[0-9]{4}"
    # China: mobile.
    r"|1[3-9][0-9]([ -])[0-9]{4}\1[0-9]{4}"
    r"|0(?:1[016-9]|2|[3-6][1-5]|70|50[0-9])([-. ])[0-9]{3,4}\2[0-9]{4}"
    # France: five pairs with one separator.
    r"|0[1-9](?:([ .-])[0-9]{2})(?:\3[0-9]{2}){3}"
    # Britain: spaced groups after a leading zero, the area code perhaps in brackets.
    r"|0[1-9][0-9]{2,4} [0-9]{3,4} ?[0-9]{3,4}|\(0[1-9][0-9]{0,4}\) ?[0-9]{3,4}[ -]?[0-9]{3,5}"
    r"|02[0-9] [0-9]{4} [0-9]{4}|07[0-9]{3} [0-9]{3} ?[0-9]{3}"
    # Germany: area code, then one separator, then the number in one or more groups.
    r"|0[1-9][0-9]{1,4}(?: ?[/-] ?| )[0-9]{5,8}"
    r"|0[1-9][0-9]{1,4}(?: ?[/-] ?| )[0-9]{2,4}(?: [0-9]{2,4}){0,3}[ -][0-9]{2,4}"
)
# Two zeros stand for the plus sign, before the codes of the countries above and some neighbours.
_DIALLED: Final = re.compile(r"00(?:1|3[1-9]|4[0-9]|6[1-5]|8[126]|91)[ -]")
_COORDINATES: Final = re.compile(r"\+[0-9]{1,3}\.[0-9]+-[0-9]{1,3}\.[0-9]+")
# A stock number, whatever its groups.
_STOCK: Final = re.compile(
    r"\b(?:sku|part|item|isbn|serial|invoice|model|article)[ #:=_.-]{0,3}(?:no|number|nr)?[ #:=.-]{0,3}$"
)
_PHONE_WORDS: Final = re.compile(
    r"(?:wa\.me/|\bph:? |phone|(?<![a-z])tel(?!l)|mobile|cell|fax|call|whatsapp|sms|handy|telefon|휴대폰|전화)"
    r"\w{0,12}[\"']?\s{0,2}[.:=(]?\s{0,2}"
    r"[\"']?(?:no\.?|number)?(?:(?:me |us )?(?:at|on|to))?[:= ]{0,3}[\"']?$"
)


def is_phone(whole: str, digits: str, before: str) -> bool:
    """Return whether `whole` is a phone number; `before` is the lower-case text before it."""
    count = len(digits)
    if not 9 <= count <= 15:
        return False
    if _DIALLED.match(whole):
        whole = "+" + whole[2:]
    if whole.startswith(("+", "(+")):
        # Points make it a coordinate or another number with a fraction.
        points = whole.count(".")
        is_decimal = points == 1 or (points > 1 and " " in whole) or _COORDINATES.fullmatch(whole)
        return bool(_INTERNATIONAL.fullmatch(whole.lstrip("("))) and not is_decimal
    # Nine digits are enough only in Seoul, with a slash after the area code, or after a word such as `phone`.
    is_clear = count >= 10 or whole.startswith(("02-", "02 ", "02.", "(02)")) or "/" in whole
    if is_clear and _NATIONAL.fullmatch(whole) and not _STOCK.search(before):
        return True
    return _PHONE_WORDS.search(before) is not None
