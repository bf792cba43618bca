# SPDX-License-Identifier: Apache-2.0
"""Classes that later corpora of public formats and strangers' texts showed: what was missed, and what was taken by mistake."""

from __future__ import annotations

import random
import string

import pytest

from redrive.redaction import Literals, redact_text

STORAGE_KEY = "/PykwXq8+Zr3tB6uN0sLd5fGh2jKmVc9xW1eYaQ7iOoT4pRzUlHnSgJbFwDvCkEyM6rA0tX8sQ2hL5fGdKj=="
HEX = "9b1c70d2e4f86a35c0d7"
HEXADECIMAL = (HEX * 4)[:64]
BASE64 = "PCT7EspiN7Ik1hqY1wvBBD/UwWMpZG5oDNOALCJMiwb="
HIDDEN = [
    (f"azure_storage_key: {STORAGE_KEY}", STORAGE_KEY),
    (".example.com\tTRUE\t/\tTRUE\t1765432100\tsession\tabc123DEFghi", "abc123DEFghi"),
    ("#HttpOnly_example.com\tFALSE\t/app\tFALSE\t0\tlang\ten-x9\nnext", "en-x9"),
    ('$p = ConvertTo-SecureString "Hunter2 x!" -AsPlainText -Force', "Hunter2 x!"),
    ("ConvertTo-SecureString -String Hunter2x -AsPlainText", "Hunter2x"),
    ("db_password = <<EOT\ncorrect horse 9\nEOT\nnext = 1", "correct horse 9"),
    ("db_password = <<-EOT\n    s3cr3tValue\n  EOT\n", "s3cr3tValue"),
    ("tel: 999013195", "999013195"),
    ("Telefon: 999013195", "999013195"),
    ("mysql --password hunter mydb", "hunter"),
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
    "storage_key: /usr/lib/x86_64-linux-gnu/libfoo",
    "storage_key: /orders/by/customer/number/and/month=",
    ".example.com\tTRUE\t/\tTRUE\t1765432100\tsession\tnone",
    "ConvertTo-SecureString -String $Plain -AsPlainText",
    'ConvertTo-SecureString "$env:PLAIN" -AsPlainText',
    "db_password = <<EOT\n${var.password}\nEOT",
    "db_password = <<EOT",
    "Bestellnummer: 999013195",
    "GET /search?q=reset+password HTTP/1.1",
    "Using --password via the CLI is insecure",
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


def test_a_long_run_of_stems_is_no_name() -> None:
    text = "key" * 400

    assert redact_text(f"{text} password=hunter2x {text}") == f"{text} password=<redacted:password> {text}"


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("secrets:\n a: b9c8d7E\n", "b9c8d7E"),
        ("db:5432:app:ada:b9c8d7E\n", "b9c8d7E"),
        ("curl -u ada:b9c8d7E https://x.example\n", "b9c8d7E"),
        ("echo ada:b9c8d7E | chpasswd\n", "b9c8d7E"),
        ("redis://ada:b9c8d7E@cache/0\n", "b9c8d7E"),
        ("ada:b9c8d7E@cache:6379\n", "b9c8d7E"),
    ],
)
def test_the_same_line_is_read_the_same_way_every_time(line: str, secret: str) -> None:
    redacted = redact_text(line)

    assert secret not in redacted
    assert redact_text(line * 3) == redacted * 3


@pytest.mark.parametrize(
    "line",
    [
        "7z x a.7z -hpb9c8d7E",
        "keytool -newkeypass b9c8d7E",
        "['expdp', 'scott/b9c8d7E']",
        "npm config\tset _auth b9c8d7E",
        "htpasswd -ib users ada b9c8d7E",
    ],
)
def test_a_command_needs_no_other_line_to_be_known(line: str) -> None:
    assert "b9c8d7E" not in redact_text(line)


def test_a_placeholder_that_holds_a_mark_is_shown_as_it_is() -> None:
    known = {"first-known": "<\U000f0001>", "second-known": "<redacted:secret>"}

    assert redact_text("first-known second-known", Literals(known)) == "<\U000f0001> <redacted:secret>"


def test_many_kinds_of_placeholders_are_shown() -> None:
    known = {f"known-{number}-known": f"<payload:$.{number}>" for number in range(9)}

    assert redact_text(" ".join(known), Literals(known)) == " ".join(known.values())


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
