# SPDX-License-Identifier: Apache-2.0
"""Classes that a third corpus of public formats showed: what was missed, and what was taken by mistake."""

from __future__ import annotations

import random
import string

import pytest

from redrive.redaction import redact_text

HEX = "9b1c70d2e4f86a35c0d7"
HEXADECIMAL = (HEX * 4)[:64]
BASE64 = "PCT7EspiN7Ik1hqY1wvBBD/UwWMpZG5oDNOALCJMiwb="
HIDDEN = [
    # Formats of providers.
    (f"Sent sntrya_{HEXADECIMAL} to the gateway", HEXADECIMAL),
    (f"Sent sntryi_{HEXADECIMAL} to the gateway", HEXADECIMAL),
    (f"Sent key_{HEXADECIMAL} to the gateway", HEXADECIMAL),
    ("got 'hawk.LTvcXhx5oMv6b3GI-iw1.HmX0e36iLB_nGYm8yxrz'", "HmX0e36iLB_nGYm8yxrz"),
    ("got endr+hWcViW-G9Ir049yR from upstream", "hWcViW-G9Ir049yR"),
    ("got service:my-graph:dj6mlBx5G1Fl7E7XNxIeA- from upstream", "dj6mlBx5G1Fl7E7XNxIeA-"),
    ("sk_hxsbr3grfjbapcjozegf3klzto", "hxsbr3grfjbapcjozegf3klzto"),
    (
        "step=2 payload=AAAAAAAAAAAAAAAAAAAAAA23CM1Ks4%2BV1ZEXN2v6NkWJiU7CoZ3%3D5OmbpowHolEjOLtAhGD8lnzQNJhhHR22q ok=false",
        "23CM1Ks4%2BV1ZEXN2v6NkWJiU7CoZ3",
    ),
    ("https://3f1506e9:c4aab534@gems.contribsys.com/", "3f1506e9"),
    ("'BUNDLE_ENTERPRISE__CONTRIBSYS__COM' => '39beb06d:df644a79'", "39beb06d:df644a79"),
    (r'{"a": "{\"BUNDLE_GEMS__CONTRIBSYS__COM\": \"9a60ce70:d1eff56c\"}"}', "9a60ce70:d1eff56c"),
    (r'{"a": "curl --user \"deploy:ir1Ag4^E#m+ZB+p.1X\" https://example.org"}', "ir1Ag4^E#m+ZB+p.1X"),
    (r'{"a": "mysqldump -p\"ir1Ag4 ZB+p.1X\" orders"}', "ir1Ag4 ZB+p.1X"),
    # Names.
    ("ENDOR_API_CREDENTIALS_KEY=hWcViW-G9Ir049yR", "hWcViW-G9Ir049yR"),
    (f"Config(presharedkey='{BASE64}', retries=3)", BASE64),
    (f'PRESHAREDKEY = "{BASE64}"', BASE64),
    ('GENIEKEY = "4de1897a-6e55-4253-9fd9-8ae2e653391b"', "4de1897a-6e55-4253-9fd9-8ae2e653391b"),
    (f"Unseal Key 1: {BASE64}", BASE64),
    (f"I set Unseal Key 2 => '{BASE64}' and it still fails", BASE64),
    (f'{{"Recovery Key 3": "{BASE64}"}}', BASE64),
    (rf'{{"a": "{{\"X-JFrog-Art-Api\": \"{HEXADECIMAL}\"}}"}}', HEXADECIMAL),
    # Values after uncertain names.
    ("storage_key=EfChl*7d?15MHtj8!?4u8L-4hK2U3H4t", "EfChl*7d?15MHtj8!?4u8L-4hK2U3H4t"),
    ("storage_key=>M9^!jkB9UnOfoyLpdVw?7qBC", "M9^!jkB9UnOfoyLpdVw?7qBC"),
    ("RELAY_KEY=>'K-C_ntU^ETV-0QBg'", "K-C_ntU^ETV-0QBg"),
    ("write_key: ER!s%wo6%_SL09p9p?rf!=F2x1X$UCjbsgZrXr", "ER!s%wo6%_SL09p9p?rf!=F2x1X$UCjbsgZrXr"),
    ("client_key => 'Ppn87+ggF+aUCOlRf4+JXP=='", "Ppn87+ggF+aUCOlRf4+JXP"),
    ('partner_key: "jeo08KeqavqfeDLOzvcNAB=="', "jeo08KeqavqfeDLOzvcNAB"),
    ('SERVICE_ROLE_KEY = "JOHQBXBRVWZGJXJDHQUDVIIY"', "JOHQBXBRVWZGJXJDHQUDVIIY"),
    ("partner_key=>erwfrvqwrffnlxdxhzwnryzbepflvije", "erwfrvqwrffnlxdxhzwnryzbepflvije"),
    ("write_key=7651587316222928", "7651587316222928"),
    # Random letters after a certain name, within a sentence or in brackets.
    ("I set integration_key:frbftznlpgcespppmtma and it still fails", "frbftznlpgcespppmtma"),
    ("use ingest_key = lexjmnjcpixbubasclbl for the staging cluster", "lexjmnjcpixbubasclbl"),
    ("call failed (shared_key => bggnhlxshpthxqxmgkuzsvrhbqrndkgk), retrying", "bggnhlxshpthxqxmgkuzsvrhbqrndkgk"),
    ("login failed (secret_key=ndwaeyicylqketgkvwju)", "ndwaeyicylqketgkvwju"),
    ("login failed (encryption_key=YsheNKSJXcjCltZo)", "YsheNKSJXcjCltZo"),
    ("login failed (EXOSCALE_SECRET=xVgdfSnixJNrx_LZYSSYLsTGUhoXxJUITXL)", "xVgdfSnixJNrx_LZYSSYLsTGUhoXxJUITXL"),
    (f"msg='AIVEN_TOKEN='+Vt{BASE64}'", BASE64),
]  # fmt: skip
KEPT = [
    "external-secrets: refreshed 12 secrets in 3s",
    "secrets: loaded 12 entries",
    f"cache_key={HEXADECIMAL[:32]}",
    f"cache_key=view:{HEXADECIMAL[:40]}",
    f"key_fingerprint={HEXADECIMAL[:40]}",
    f"hash_key={HEXADECIMAL}",
    f"etag_key={HEXADECIMAL[:16]}",
    "sort_key=customername",
    "partition_key=tenantidentifier",
    "sort_key=CUSTOMER_LAST_ORDER_NUMBER",
    "write_key=customerShippingAddress",
    "sort_key=2024-05-17#123456",
    "time_key=%Y-%m-%dT%H:%M:%S",
    "row_key=1048576000",
    "the key 1: is pressed twice",
]


@pytest.mark.parametrize(("text", "secret"), HIDDEN)
def test_a_class_that_was_missed_is_hidden(text: str, secret: str) -> None:
    redacted = redact_text(text)

    assert secret not in redacted
    assert redact_text(redacted) == redacted


@pytest.mark.parametrize("text", KEPT)
def test_a_class_that_was_taken_by_mistake_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("letters", [string.ascii_lowercase, string.ascii_uppercase, string.ascii_letters])
def test_random_letters_after_the_name_of_a_key_are_hidden(letters: str) -> None:
    draw = random.Random(letters)
    values = ["".join(draw.choices(letters, k=size)) for size in (20, 24, 32) for _ in range(200)]

    missed = [value for value in values if value in redact_text(f"relay_key={value}")]

    assert len(missed) <= 0.01 * len(values), missed


def test_long_words_after_the_name_of_a_key_stay() -> None:
    words = (
        "acknowledgements administratively authenticationbackend backwardscompatibility characteristically"
        " configurationmanager crossorganizational customeridentifier departmentofhealth electromagnetically"
        " EnvironmentVariables internationalization InvoiceLineItemNumber kundenbestellnummer manufacturingplants"
        " MERCHANTCATEGORYCODE misunderstandings notificationpreferences ORGANIZATIONALUNIT purchaseorderlines"
        " responsabilidadcivil shippingaddresscountry SubscriptionRenewalDate telecommunications transactionhistory"
        " uncharacteristically utilisateurprincipal warehouselocationname"
    ).split()

    assert [word for word in words if redact_text(f"relay_key={word}") != f"relay_key={word}"] == []
