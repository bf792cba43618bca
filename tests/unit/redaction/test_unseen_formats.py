# SPDX-License-Identifier: Apache-2.0
"""Formats of providers that the table once did not have, in every context; and names in code that look like them.

A template is text with parts in braces: an alphabet and a length, as in `{hex 32}`.
"""

from __future__ import annotations

import random
import re

import pytest

from redrive.redaction import redact_text
from tests.unit.redaction.test_format_table import ALPHABETS, CONTEXTS, survives

UUID = "{hex 8}-{hex 4}-{hex 4}-{hex 4}-{hex 12}"
PART = re.compile(r"\{(\w+) ([0-9]+)\}")

FORMATS = {
    "akamai": "akab-{lower 16}-{lower 16}",
    "bitwarden": f"0.{UUID}.{{alnum 30}}:{{base64 22}}==",
    "trello": "ATTA{hex 64}{upper 8}",
    "digitalocean": "DO00{upper 16}",
    "segment": "sgp_{alnum 64}",
    "unkey": "unkey_7{alnum 21}",
    "stytch": "secret-live-{url 34}a=",
    "trigger": "tr_dev_{alnum 20}",
    "inngest": "signkey-prod-{hex 64}",
    "xata": "xau_{alnum 43}",
    "deno": "ddp_{alnum 36}",
    "valtown": "vtwn_3{alnum 27}",
    "anyscale": "esecret_{lower 26}",
    "polar": "polar_oat_{alnum 43}",
    "xendit": "xnd_production_{alnum 60}",
    "midtrans": "Mid-server-{url 23}a",
    "omise": "skey_5{lower 18}",
    "mercadopago": "APP_USR-{digit 16}-{digit 6}-{hex 32}-{digit 9}",
    "alchemy": "alcht_{alnum 30}",
    "webex": f"{{alnum 64}}_PF84_{UUID}",
    "kaggle": "KGAT_{hex 32}",
    "google": "4/0A{url 69}a",
    "azure event grid": "{alnum 33}AZEGA{alnum 5}=",
    "azure service bus": "{base64 33}+ASbB{alnum 5}=",
    "azure registry": "{alnum 42}+ACRA{alnum 5}",
    "azure ai": "{alnum 52}JQQJ99BAC{alnum 23}",
    "socket": "sktsec_{url 40}_api",
    "elastic": "essu_{alnum 60}==",
    "healthchecks": "hcw_{alnum 28}",
    "checkly": "cu_{hex 32}",
    "woocommerce": "cs_{hex 40}",
    "ecwid": "secret_4{alnum 31}",
    "clickup": "pk_{digit 8}_{upper 32}",
    "n8n": "n8n_api_{hex 40}",
    "netbird": "nbp_{alnum 36}",
    "salesforce": "3MVG9{url 79}a",
    "salesforce session": "00D{alnum 12}!AQ{alnum 94}",
    "close": "api_{alnum 22}.{alnum 22}",
    "extended key": "xprv9s21ZrQH143K{alnum 95}",
    "nostr": "nsec1{lower 58}",
    "swarm": "SWMTKN-1-{lower 50}-{lower 25}",
    "rancher": "token-{lower 5}:{lower 54}",
    "portainer": "ptr_{base64 43}=",
    "onesignal": "os_v2_app_{lower 103}",
    "ably": "{alnum 6}.{alnum 6}:7B{alnum 41}",
    "pubnub": "sec-c-{alnum 48}",
    "honeybadger": "hbp_{alnum 36}",
    "rapidapi": "{hex 10}msh{hex 15}p1{hex 6}jsn{hex 12}",
    "riot": f"RGAPI-{UUID}",
    "roblox": "_|WARNING:-DO-NOT-SHARE-THIS.--Sharing-this-will-allow-someone-to-log-in-as-you.|_{upper_hex 300}",
    "runway": "key_{hex 128}",
    "cartesia": "sk_car_{alnum 22}",
    "daytona": "dtn_{hex 64}",
    "apify": "apify_api_{alnum 36}",
    "luma": f"luma-{UUID}-{UUID}",
    "smtp2go": "api-4{upper_hex 31}",
    "onfido": "api_live.{alnum 11}.{alnum 32}",
    "voiceflow": "VF.DM.{hex 24}.{alnum 16}",
    # Of nobody: the common form alone is enough.
    "an unknown provider": "wxyz_7Kq{alnum 8}3{alnum 8}x{alnum 14}",
    "an unknown provider with a word": "wxyz_bot_R4t{alnum 8}3{alnum 8}x{alnum 10}",
}


@pytest.mark.parametrize("provider", FORMATS)
def test_hides_formats_that_the_table_did_not_have(provider: str) -> None:
    draw = random.Random(provider)
    signs = {**ALPHABETS, "upper_hex": "0123456789ABCDEF"}
    secrets = [
        PART.sub(lambda part: "".join(draw.choices(signs[part[1]], k=int(part[2]))), FORMATS[provider])
        for _ in range(3)
    ]

    missed = [
        text
        for secret in secrets
        for carrier in CONTEXTS.values()
        if survives(secret, redact_text(text := carrier(secret)))
    ]

    assert not missed


@pytest.mark.parametrize(
    "line",
    [
        "relation orders_test_database_migration_0042 does not exist",
        "tests/test_orders.py::orders_test_function_for_orders_v2 PASSED",
        "app_token_refresh_interval_seconds_2=30",
        "django_secret_rotation_schedule_v2_enabled",
        "replica acme_prod_orders_replica_set_01_primary is behind",
        "queue cluster_prod_eu_west_1_worker_pool_a is empty",
        "backup orders_prod_20261118010203 finished",
        "step check_TheOrderOfCustomer42IsChargedExactly2Times has passed",
        "dpl_5WJWYSyB7BpgTj3EuwF37WMRBXBtPQ2iTMJHJBJyRfd is ready",
        "request req_011CSHoEeqs5C35K2UUqR7Fy of payment pi_3MtwBwLkdIwHu7ix28a3tqPa failed",
    ],
)
def test_names_in_code_with_a_word_for_a_token_stay(line: str) -> None:
    assert redact_text(line) == line
