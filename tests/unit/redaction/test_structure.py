# SPDX-License-Identifier: Apache-2.0
"""Redaction of mappings, sequences and scalars."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import pytest

from redrive.redaction import redact_value
from redrive.redaction.structure import DEPTH_MAX

SECRET_KEYS = """
password passwd pwd secret token api_key apikey apiKey API_KEY authorization Authorization cookie Cookie set-cookie Set-Cookie private_key
client_secret clientSecret access_key accessKey session dsn credentials db_password dbPassword DB_PASSWORD X-Api-Key x-api-key AWS_SECRET_ACCESS_KEY
aws_session_token refresh_token id_token accessToken bearer jwt passphrase passcode secret_key SECRET_KEY_BASE signing_key encryption_key auth_token
proxy-authorization X-Auth-Token smtp_pass webhook_secret otp cvv pin mnemonic seed_phrase password_hash new_password password2 user.password auth
connection_string account_key SharedAccessKey stripe_key recovery_code
""".split()
OPEN_KEYS = """
token_count max_tokens total_tokens prompt_tokens password_policy key primary_key sort_key idempotency_key session_count tokenizer secretary author monkey
key_id access_key_id keys token_type token_url password_min_length passed passenger cache_key object_key partition_key status_code code user username
sessions secret_name authority authentication authenticated signature_version public_key keyboard compass bypass design signal assigned tokens
expires_in cookie_name cookie_policy credentials_path credential_type
""".split()


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_the_value_under_a_secret_key_goes_whole(key: str) -> None:
    redacted = redact_value({key: "some words of text", "n": 1})

    assert isinstance(redacted, dict)
    assert str(redacted[key]).startswith("<redacted:")
    assert redacted["n"] == 1


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_secret_key_hides_numbers_lists_and_mappings_too(key: str) -> None:
    redacted = redact_value([{key: 12345}, {key: ["a", "b"]}, {key: {"a": 1}}, {key.encode(): b"some bytes"}])

    assert isinstance(redacted, list)
    assert [next(iter(item.values())) for item in redacted] == [next(iter(redacted[0].values()))] * 4


@pytest.mark.parametrize("value", ["value", 123, 4096, "some words", True, "2024-05-01"])
def test_a_key_that_only_sounds_telling_keeps_its_value(value: object) -> None:
    shown = {key: redact_value({key: value}) for key in OPEN_KEYS}

    assert shown == {key: {key: value} for key in OPEN_KEYS}


@pytest.mark.parametrize("nothing", [None, True, False, "", "***", "${TOKEN}", "<redacted:jwt>"])
def test_nothing_to_hide_is_left_to_be_seen(nothing: object) -> None:
    assert redact_value({"password": nothing}) == {"password": nothing}


def test_headers_as_pairs_are_read_as_headers() -> None:
    pairs = [("Authorization", "Bearer x"), ("Host", "h"), (b"cookie", b"a=b"), ["X-Api-Key", "y"]]

    assert redact_value(pairs) == [
        ("Authorization", "<redacted:authorization>"),
        ("Host", "h"),
        (b"cookie", "<redacted:cookie>"),
        ["X-Api-Key", "<redacted:secret>"],
    ]


def test_two_field_names_are_no_header() -> None:
    assert redact_value(["password", "token"]) == ["password", "token"]


def test_a_name_and_a_value_side_by_side_belong_together() -> None:
    value = {
        "env": [
            {"name": "DB_PASSWORD", "value": "x y"},
            {"name": "PORT", "value": "80"},
            {"name": 3, "value": "v"},
        ]
    }

    assert redact_value(value) == {
        "env": [
            {"name": "DB_PASSWORD", "value": "<redacted:password>"},
            {"name": "PORT", "value": "80"},
            {"name": 3, "value": "v"},
        ]
    }


def test_texts_bytes_and_large_numbers_are_looked_into() -> None:
    value = {
        "note": "mail a@example.com",
        "raw": b"mail a@example.com",
        "card": 4111111111111111,
        "n": 10**30,
        "same": b"\xff\x00",
        "id": 123456789,
    }

    assert redact_value(value) == {
        "note": "mail <redacted:email>",
        "raw": b"mail <redacted:email>",
        "card": "<redacted:card>",
        "n": 10**30,
        "same": b"\xff\x00",
        "id": 123456789,
    }


def test_keys_are_redacted_and_stay_apart() -> None:
    assert redact_value({"a@example.com": 1, "b@example.com": 2, 3: 4, None: 5, (1, 2): 6}) == {
        "<redacted:email>": 1,
        "<redacted:email>'": 2,
        3: 4,
        None: 5,
        (1, 2): 6,
    }


def test_harmless_scalars_stay_objects() -> None:
    value = [1.5, decimal.Decimal("1.5"), datetime.date(2024, 5, 1), uuid.UUID(int=1), datetime.timedelta(1)]

    assert redact_value(value) == value


def test_sets_and_other_mappings_are_walked() -> None:
    class Fixed(Mapping[str, str]):
        def __getitem__(self, key: str) -> str:
            return "x y"

        def __iter__(self) -> Iterator[str]:
            return iter(["password"])

        def __len__(self) -> int:
            return 1

    assert redact_value(frozenset({"a@example.com"})) == frozenset({"<redacted:email>"})
    assert redact_value({"a@example.com"}) == {"<redacted:email>"}
    assert redact_value(Fixed()) == {"password": "<redacted:password>"}
    assert redact_value(OrderedDict(a="b")) == {"a": "b"}


def test_unknown_objects_are_shown_redacted() -> None:
    class Settings:
        def __repr__(self) -> str:
            return "Settings(password='hunter2')"

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert redact_value([Settings(), Broken()]) == [
        "Settings(password='<redacted:password>')",
        "<redacted:unprintable>",
    ]


def test_a_cycle_ends() -> None:
    value: list[object] = ["a"]
    value.append(value)

    assert redact_value(value) == ["a", "<redacted:cycle>"]


def test_depth_is_bounded() -> None:
    value: object = "a@example.com"
    for _ in range(DEPTH_MAX * 20):
        value = [value]

    assert "<redacted:depth>" in repr(redact_value(value))


def test_what_is_shared_is_walked_once() -> None:
    value: object = ["a@example.com"]
    for _ in range(60):
        value = [value, value]

    assert isinstance(redact_value(value), list)


def test_values_that_a_mapping_makes_when_they_are_asked_for_stay_apart() -> None:
    class Made(Mapping[str, object]):
        def __init__(self, depth: int) -> None:
            self.depth = depth

        def __getitem__(self, word: str) -> object:
            return Made(self.depth - 1) if self.depth else word

        def __iter__(self) -> Iterator[str]:
            return iter(("one", "two", "three"))

        def __len__(self) -> int:
            return 3

    each = {"one": "one", "two": "two", "three": "three"}
    assert redact_value(Made(2)) == {word: dict.fromkeys(each, each) for word in each}


def test_an_uncertain_name_hides_only_random_values() -> None:
    assert redact_value({"signature": "ab12" * 16, "nonce": "first"}) == {
        "signature": "<redacted:secret>",
        "nonce": "first",
    }
    assert redact_value({"signature": 5}) == {"signature": 5}
