# SPDX-License-Identifier: Apache-2.0
"""Reduce a message to what stays the same when the same failure happens again with other values.

`normalise` makes one pass and replaces ids, numbers, addresses, times, paths and quoted values by placeholders such as `<id>`.
Names from the program stay. It decides by the form of a token and the word before it, so it is sometimes wrong; it never raises,
and its cost is linear. `without_values` runs before it and takes out the values of the job's payload. Both sometimes merge too
much, which is the smaller error: a cause spread over many groups looks small, and replaying one group brings back only a part.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, cast

_MESSAGE_MAX: Final = 2_000
_NORMAL_MAX: Final = 300

_PLACEHOLDER: Final = "<(?:id|email|ip|path|time|value)>"
_PART: Final = r"[\w.@%+~-]{1,255}"
# A quote never opens inside a word, and an apostrophe inside a word does not close one.
_QUOTED: Final = r"""(?:
      (?<![\w\\'])[bru]{0,2}'[^'\\]{0,300}(?:(?:\\.|(?<=\w)'(?=\w))[^'\\]{0,300}){0,20}'(?!\w)
    | (?<![\w\\"])[bru]{0,2}"[^"\\]{0,300}(?:\\.[^"\\]{0,300}){0,40}"(?!\w)
    | (?<!\w)`[^`]{0,300}`(?!\w)
    | \\"[^"\\]{0,300}\\"
    )"""
_CLOCK: Final = r"\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_UNIT: Final = r"(?:[nuµm]?s|sec(?:ond)?s?|min(?:ute)?s?|hours?|days?|bytes?|[KMGT]i?B)"
_TOKENS: Final = re.compile(
    rf"""
      (?P<value>(?<=:\ )(?:None|null|[Tt]rue|[Ff]alse)(?=[,}}]))
    | (?P<plain>(?:(?!(?:nan|inf)\b|[a-f]{{7}})[A-Z]?[a-z]{{1,30}},?\ ){{1,100}})
    | (?P<placeholder>{_PLACEHOLDER})
    | (?P<url>[A-Za-z][A-Za-z0-9+.-]{{1,20}}://[^\s'"<>]{{1,2000}}(?:<path>)?)
    | (?P<email>[\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{1,8}})
    | (?P<uuid>[0-9a-fA-F]{{8}}(?:-?[0-9a-fA-F]{{4}}){{4}}[0-9a-fA-F]{{8}}(?!\w))
    | (?P<time>\d{{4}}-\d\d-\d\d(?:[T\ ]{_CLOCK})?(?:Z|[+-]\d\d:?\d\d)?(?!\w)
        | (?:{_CLOCK}|\d:\d\d(?::\d\d)?|\d{{1,2}}/\d{{1,2}}/\d{{2,4}})(?![\w:]))
    | (?P<ip>\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?::\d{{1,5}})?(?!\w)
        | (?<![\w:])(?=[a-fA-F:]{{0,39}}\d)(?:[0-9a-fA-F]{{0,4}}:){{2,7}}[0-9a-fA-F]{{0,4}}(?:%\w{{1,15}})?(?![\w:]))
    | (?P<id>(?:\d{{1,9}}(?:\.\d{{1,9}})?(?:[nuµm]?s|[mh])){{1,4}}(?!\w))
    | (?P<number>[-+]?(?:0x[0-9a-fA-F]{{1,40}}|nan|inf|NaN
        | (?:\d{{1,3}}(?:,\d{{3}}){{1,6}}(?!\d)|\d{{1,40}})(?:\.\d{{1,40}})?(?:[eE][+-]?\d{{1,4}})?)
        (?:\ ?{_UNIT})?(?!\w|[-.][A-Za-z]))
    | (?P<path>(?:[A-Za-z]:(?=[/\\])|(?<![\w.<>/\\])(?=/|\\{{1,2}}{_PART}\\))
            (?:[/\\]{{1,2}}{_PART}){{1,40}}/?(?:\?[^\s'"<>)]{{0,500}})?
        | (?:~|\.{{1,2}})(?:[/\\]{_PART}){{1,40}})
    | (?P<row>(?:(?<==)|(?<=contains\ ))\([^()]{{0,300}}\))
    | (?P<quoted>{_QUOTED}(?:(?:,\ ?|,?\ and\ |,?\ or\ ){_QUOTED}(?!:)){{0,50}})
    | (?P<word>\w{{1,2000}}(?:[-.]\w{{1,255}}){{0,20}}(?:(?:/{_PART}){{1,40}}|={{1,2}}(?![\w='"(\[{{]))?)
    """,
    re.VERBOSE,
)
"""A character that none of these matches stays. `plain` only saves time: it skips common words."""

_FIXED: Final = {"row": "(<value>)", "uuid": "<id>"}
_HOST_END: Final = re.compile(r"[/?#:]")
_WORD_BEFORE: Final = re.compile(r"([A-Za-z]{2,20})([\s\"':=(\[#]{1,4})\Z")
_CODES_AFTER: Final = frozenset("code errno error http returned sqlstate status".split())
"""Words after which a number is an error code."""
_CODE: Final = re.compile(r"-?\d{1,5}|0x[0-9a-fA-F]{1,8}")
_OPENS_ARGUMENTS: Final = re.compile(r", ?(?:['\"]|<value>)")
_NAMES_AFTER: Final = frozenset(
    """argument attribute class codec code column command constraint database encoding error extension field flag function header
    import index key keyword kind method module near object operator option parameter plugin property queue reason relation schema
    sequence setting stage status step table task template topic trigger type variable view""".split()
)
"""Words, also in the plural, after which a quoted word is a name from the program."""
_NAME_BEFORE: Final = re.compile(
    r" (?:object|attribute|field|key|column|argument|parameter|property|codec|module)\b"
    r"| (?:is not defined|is (?:a )?required|was unexpected)\b"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,60}")
_MESSAGE_WORDS: Final = frozenset("description detail error message msg reason".split())
"""Words after which a quoted sentence describes the failure."""
_KEPT_KEYS: Final = _MESSAGE_WORDS | {"code", "field", "kind", "type"}
"""Keys of a quoted mapping that distinguish bugs; other keys belong to a row of data."""
_ONE_QUOTED: Final = re.compile(_QUOTED, re.VERBOSE)
_WHOLE: Final = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"")

_FILE: Final = re.compile(
    r".*\.(?:7z|avro|bak|bmp|bz2|csv|db|docx?|eml|gif|gz|html?|ics|jpe?g|jsonl?|log|md|mov|mp[34]|parquet|pdf|png|pptx?|sqlite|svg|tar|tgz"
    r"|tiff?|tmp|tsv|txt|wav|webp|xlsx?|xml|xz|ya?ml|zip|zst)"
)
_BASE64: Final = re.compile(r"(?=.*[A-Z])(?=.*[a-z])\w{6,}={1,2}")
_PREFIXED: Final = re.compile(
    r"(?:acct|asst|cus|evt|sess|txn|usr)[-_][A-Za-z0-9]{8,}"
    r"|[a-z]{2,8}[-_](?!(?:[A-Z][a-z]{2,}\d{0,3})+\Z)(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])[A-Za-z0-9]{8,}"
)
"""Ids with their kind in front, such as `cus_NffrFeUfNV2Hib`; after an unambiguous kind, letters alone are enough."""
_POD: Final = re.compile(r"-(?=[a-z]{0,9}\d)[0-9a-z]{8,10}-[0-9a-z]{5}(?![\w-])")
_HEX: Final = re.compile(r"(?=[a-f]*\d)[0-9a-f]{6,}|(?=[A-F]*\d)[0-9A-F]{6,}|[a-f]{7,}")
_HEX_WORDS: Final = frozenset("acceded defaced ed25519 effaced".split())
_COUNTED: Final = re.compile(r"([A-Za-z]+)\d{3,}")
_COUNTED_NAMES: Final = frozenset("cp float int iso rfc sha uint".split())
"""Words with a number of three digits or more in their name, such as sha256."""
_SWITCH: Final = re.compile(r"(?<=[a-z])[A-Z]|(?<=[A-Za-z])\d|(?<=\d)[A-Za-z]")
_JOINTS: Final = re.compile(r"([-_.])")
_DIGIT: Final = re.compile(r"\d")
_IDS: Final = re.compile("<id>(?:[-_.]<id>)+")
_LISTED: Final = re.compile(rf"({_PLACEHOLDER})(?:(?:, ?|: ){_PLACEHOLDER}){{1,500}}")
_LISTED_GROUPS: Final = re.compile(
    rf"([\[({{]{_PLACEHOLDER}[\])}}])(?:, ?[\[({{]{_PLACEHOLDER}[\])}}]){{1,500}}"
)


def normalise(message: str, *, quotes_names: bool = False) -> str:
    """Return the message with everything that differs between occurrences replaced by placeholders.

    A quoted word stays if the words around it show that it is a name from the program. With `quotes_names` it always stays: that
    is for the messages of types such as AttributeError, which quote little else.
    """
    text = " ".join(message[:_MESSAGE_MAX].split())
    if _WHOLE.fullmatch(text) and text.count(" ") >= 2:
        # The message of a KeyError is the repr of its argument: here a sentence, not a key.
        text = text[1:-1].strip()
    text = _TOKENS.sub(partial(_replacement, quotes_names=quotes_names, is_inner=False), text)
    if ">, " in text or ">,<" in text or ">: <" in text or "]," in text:
        # The length of a list and the fields of a row do not distinguish causes.
        text = _LISTED_GROUPS.sub(r"\1", _LISTED.sub(r"\1", text))
    return text[:_NORMAL_MAX].rstrip()


def _replacement(match: re.Match[str], *, quotes_names: bool, is_inner: bool) -> str:
    kind = match.lastgroup or ""
    text = match[0]
    if kind in {"plain", "placeholder"}:
        return text
    if kind == "word":
        return _word(text)
    if kind == "number":
        return text if _is_code(match) else "<id>"
    if kind == "quoted":
        return _quoted(match, quotes_names=quotes_names, is_inner=is_inner)
    return _url(text) if kind == "url" else _FIXED.get(kind) or f"<{kind}>"


def _url(text: str) -> str:
    scheme, _, rest = text.partition("://")
    host = _HOST_END.split(rest.rpartition("@")[2], maxsplit=1)[0]
    return f"{scheme}://{host}/<path>"


def _word_before(match: re.Match[str]) -> tuple[str, str]:
    """Return the word right before the match, in lower case, and the text between the two."""
    start = match.start()
    found = _WORD_BEFORE.search(match.string, max(0, start - 24), start)
    return (found[1].lower(), found[2]) if found else ("", "")


def _is_code(match: re.Match[str]) -> bool:
    """Return whether a number is an error code: `returned 404`, `[Errno 2]`, `(1045, 'Access denied')`."""
    if not _CODE.fullmatch(match[0]):
        return False
    text, start = match.string, match.start()
    if text[start - 1 : start] == "(" and _OPENS_ARGUMENTS.match(text, match.end()):
        return True
    word, between = _word_before(match)
    # "Error: 17 rows are bad" counts rows.
    return word in _CODES_AFTER and not (word == "error" and ":" in between)


def _quoted(match: re.Match[str], *, quotes_names: bool, is_inner: bool) -> str:
    """Keep names from the program and sentences; anything else in quotes is a value."""
    text, whole = match[0], match.string
    word, between = _word_before(match)
    is_message = word in _MESSAGE_WORDS or whole[match.start() - 1 : match.start()] == "("
    if is_message and not is_inner and text.count(" ") >= 2 and _ONE_QUOTED.fullmatch(text):
        inner = partial(_replacement, quotes_names=quotes_names, is_inner=True)
        return text[0] + _TOKENS.sub(inner, text[1:-1]) + text[-1]
    if whole.startswith(":", match.end()):
        is_name = text[1:-1] in _KEPT_KEYS
    elif "'" in between or '"' in between:
        is_name = word in _KEPT_KEYS
    else:
        is_name = word in _NAMES_AFTER or (word.endswith("s") and word[:-1] in _NAMES_AFTER)
    is_name = (
        is_name
        or quotes_names
        or len(text) == len(whole)
        or _NAME_BEFORE.match(whole, match.end()) is not None
    )
    if not is_name:
        return "<value>"
    return _ONE_QUOTED.sub(_name_or_value, text)


def _name_or_value(match: re.Match[str]) -> str:
    text = match[0]
    if not _NAME.fullmatch(text, 1, len(text) - 1):
        return "<value>"
    return text[0] + _word(text[1:-1]) + text[-1]


def _word(text: str) -> str:
    """Return a token with the parts that look like ids replaced."""
    if text.isalpha():
        return _part(text)
    if _FILE.fullmatch(text):
        return "<path>"
    if "/" in text:
        return "/".join(_word(part) for part in text.split("/"))
    if text[-1] == "=":
        return "<id>" if len(text) % 4 == 0 and _BASE64.fullmatch(text) else _word(text.rstrip("=")) + "="
    if _PREFIXED.fullmatch(text):
        return f"{_JOINTS.split(text, maxsplit=1)[0]}-<id>"
    text = _POD.sub("-<id>", text)
    return _IDS.sub("<id>", "".join(_part(part) for part in _JOINTS.split(text)))


def _part(text: str) -> str:
    """Replace a run of letters and digits if it is an id: `Sha256Error` and `line2` are names, `3f2a90c` and `AbCdEfGh` are ids."""
    if text.isdigit():
        return "<id>"
    if _HEX.fullmatch(text) and text not in _HEX_WORDS:
        return "<id>"
    counted = _COUNTED.fullmatch(text)
    if counted:
        return text if counted[1].lower() in _COUNTED_NAMES else f"{counted[1]}<id>"
    switches, digits = len(_SWITCH.findall(text)), len(_DIGIT.findall(text))
    is_mixed = switches * 3 >= len(text) and (
        len(text) >= 8 or (digits >= 2 and switches >= 3 and len(text) >= 5)
    )
    return "<id>" if is_mixed or digits >= 5 else text


QUOTED: Final = "0000000"
"""Replaces every value. `normalise` reads it as a number anywhere, and it is too long for an error code, so a number, an id and a
name in the same place of a message are one group as well."""
QUOTED_MIN: Final = 2
"""Country and language codes count; single letters are too common."""

_FEW_MAX: Final = 64
"""Up to this many values are first searched one by one: most messages quote none, and this is the fastest way to find out."""
_REDACTED: Final = re.compile(r"<(?:payload|redacted)(?::[^<>]*)?>")
_PLACES: Final = re.compile(rf"{_REDACTED.pattern}|(?<!\w)\w|[^\w\s]")
"""A placeholder, or a place where a value may begin: never inside a word."""
_INSIDE_WORD: Final = re.compile(r"(?<=\w)(?=\w)")
_COMMON: Final = frozenset(
    """about after all already an and any are as at be been before but by can cannot could denied empty error errors expired failed
    failure fails for found from had has have if in into invalid is it its may missing must no nor not of on only or out over
    refused should than that the their then there this timeout to too under unknown was were when which while will with without
    would""".split()
)
"""Words that are common in error messages. If one of them in a payload counted as a value, jobs with such a payload would form a
group of their own. In capitals they do count, as codes: `NO` is a country."""


def short_values(value: object, *, shorter_than: int) -> set[str]:
    """Return the strings of a decoded value that are shorter than the limit and may be quoted in a message.

    Keys are names from the program. Whole numbers are left to `normalise`, which recognises a status by the word before it.
    """
    found: set[str] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, str):
            if len(current) < shorter_than and _may_be_quoted(stripped := current.strip()):
                found.add(stripped)
        elif isinstance(current, dict):
            waiting += cast("dict[str, object]", current).values()
        elif isinstance(current, list):
            waiting += cast("list[object]", current)
    return found


def _may_be_quoted(text: str) -> bool:
    if len(text) < QUOTED_MIN or (text if text.isupper() else text.lower()) in _COMMON:
        return False
    return not text.lstrip("+-").isdigit() and any(sign.isalnum() for sign in text)


def without_values(message: str, values: AbstractSet[str]) -> str:
    """Replace the redactor's placeholders in a message, and every value that occurs as whole words, by the same text.

    The redactor leaves short strings, which are too common to hide. They are replaced like the long ones, so that the length of a
    value never creates a group of its own. Pieces of the message are looked up among the values, the longest first, so that very
    many values cost no more than a few.
    """
    if len(values) <= _FEW_MAX:
        values = {value for value in values if value in message}
    if not values:
        return _REDACTED.sub(QUOTED, message)
    lengths = sorted({len(value) for value in values}, reverse=True)
    pieces: list[str] = []
    done = 0
    for place in _PLACES.finditer(message):
        start = place.start()
        if start < done:
            continue
        end = place.end()
        if end - start == 1:
            end = _end_of_value(message, start, values, lengths)
        if end:
            pieces += (message[done:start], QUOTED)
            done = end
    pieces.append(message[done:])
    return "".join(pieces)


def _end_of_value(message: str, start: int, values: AbstractSet[str], lengths: list[int]) -> int:
    """Return the end of the longest value that starts here; 0 if none does."""
    for length in lengths:
        piece = message[start : start + length]
        end = start + len(piece)
        if piece in values and not _INSIDE_WORD.match(message, end):
            return end
    return 0
