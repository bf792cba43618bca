# SPDX-License-Identifier: Apache-2.0
"""Recognise phone numbers by their notation: international, North American, Korean, British, German and French.

Groups and separators decide; digits without separators are a phone number only after a word such as `phone`.
"""

from __future__ import annotations

import re
from typing import Final

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
