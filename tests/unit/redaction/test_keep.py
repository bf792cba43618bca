# SPDX-License-Identifier: Apache-2.0
"""What must stay whole: code, messages, ids, hashes, times and addresses that only look telling."""

from __future__ import annotations

import random

import pytest

from redrive.redaction import redact_text

from .drawn_secrets import ALNUM, HEX, UPPER, Format, body, uuid
from .keep import KEPT
from .keep_odd import KEPT_ODD
from .people import digits

FALSE_POSITIVES_MAX = 0.01
CARRIERS = ("{}", "job {} failed", "id={}", '{{"id": "{}"}}', "see ({})")


@pytest.mark.parametrize("texts", [KEPT, KEPT_ODD], ids=["kept", "odd"])
def test_ordinary_text_stays_as_it_is(texts: list[str]) -> None:
    changed = [(text, redact_text(text)) for text in texts if redact_text(text) != text]

    assert len(texts) >= 100
    assert changed == []


def test_ordinary_text_stays_as_it_is_when_it_stands_together() -> None:
    """Neighbouring lines may not make each other telling."""
    text = "\n".join(line for line in KEPT if "BEGIN" not in line)

    assert redact_text(text) == text


ORDINARY: dict[str, Format] = {
    "uuid": uuid,
    "git hash": lambda draw: body(draw, HEX, 40),
    "short git hash": lambda draw: body(draw, HEX, 7),
    "sha256": lambda draw: "sha256:" + body(draw, HEX, 64),
    "md5": lambda draw: body(draw, HEX, 32),
    "trace": lambda draw: f"00-{body(draw, HEX, 32)}-{body(draw, HEX, 16)}-01",
    "request id": lambda draw: "req_" + body(draw, ALNUM, 24),
    "ulid": lambda draw: "01" + body(draw, "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 24),
    "object id": lambda draw: body(draw, HEX, 24),
    "epoch": lambda draw: "17" + digits(draw, 8),
    "epoch ms": lambda draw: "17" + digits(draw, 11),
    "epoch us": lambda draw: "17" + digits(draw, 14),
    "epoch ns": lambda draw: "17" + digits(draw, 17),
    "ten digits": lambda draw: digits(draw, 10),
    "twelve digits": lambda draw: digits(draw, 12),
    "address": lambda draw: (
        f"10.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(256)}:{draw.randrange(1024, 65536)}"
    ),
    "version": lambda draw: f"{draw.randrange(40)}.{draw.randrange(100)}.{draw.randrange(10000)}",
    "time": lambda draw: (
        f"2024-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}T{draw.randrange(24):02d}:00:00.{digits(draw, 6)}Z"
    ),
    "coordinates": lambda draw: f"{draw.uniform(-90, 90):.6f}, {draw.uniform(-180, 180):.6f}",
    "order": lambda draw: f"ORD-2024-{digits(draw, 6)}",
    "invoice": lambda draw: f"INV-{digits(draw, 4)}-{digits(draw, 8)}",
    "amount": lambda draw: (
        f"{draw.randrange(1, 999)},{draw.randrange(100, 999)},{draw.randrange(100, 999)}.{digits(draw, 2)}"
    ),
    "arn": lambda draw: f"arn:aws:lambda:eu-west-1:{digits(draw, 12)}:function:f-{body(draw, HEX, 8)}",
    "pointer": lambda draw: f"<Job object at 0x7f{body(draw, HEX, 10)}>",
    "path": lambda draw: (
        f"/srv/app/releases/2024{digits(draw, 10)}/lib/python3.11/site-packages/x_{body(draw, HEX, 8)}.py"
    ),
    "part number": lambda draw: f"{body(draw, UPPER, 3)}-{digits(draw, 5)}-{body(draw, UPPER, 4)}",
}


@pytest.mark.parametrize("kind", ORDINARY)
def test_generated_ids_stay_whole(kind: str) -> None:
    draw = random.Random(kind)
    texts = [carrier.format(ORDINARY[kind](draw)) for carrier in CARRIERS for _ in range(100)]

    changed = [text for text in texts if redact_text(text) != text]

    assert len(changed) <= FALSE_POSITIVES_MAX * len(texts), changed
