# SPDX-License-Identifier: Apache-2.0
"""Everyday texts that a newcomer tried: what was once missed, and what was once hidden without need."""

from __future__ import annotations

import random
import string

import pytest

from redrive.redaction import redact_text

_RANDOM = random.Random(20)
_ALPHANUMERIC = string.ascii_letters + string.digits
_UPPER = string.ascii_uppercase + string.digits


def _body(length: int, signs: str = _ALPHANUMERIC) -> str:
    # The first characters hold both cases and a digit, so that no drawing is a plain word.
    return (
        "A7"
        + ("" if signs is _UPPER else "k")
        + "".join(_RANDOM.choices(signs, k=length - 3 + (signs is _UPPER)))
    )


TOKENS = {
    "atlassian api": "ATATT" + "3x" + _body(180),
    "atlassian access": "ATCTT" + "3x" + _body(100),
    "sentry organisation": "sntr" + "ys_" + _body(100),
    "grafana cloud": "gl" + "c_" + _body(60),
    "vercel": "verc" + "el_" + _body(24),
    "firebase messaging": "AAAA" + _body(7) + ":" + "APA91" + "b" + _body(134),
    "dropbox": "sl" + "." + _body(130),
    "dropbox short-lived": "sl" + ".u." + _body(130),
    "amazon marketplace": "amzn" + ".mws." + "4ea38b7b-f563-7709-4bae-87aea15c0a3d",
    "runpod": "rp" + "a_" + _body(43),
    "scaleway": "SC" + "W" + _body(17, _UPPER),
    "instagram": "IG" + "QVJ" + _body(120),
}
FRAMES = ("{}", "client failed with {} (401)", '{{"v": "{}"}}', "['{}']", "/cb?x={}&y=1", "got {}.")

PASSWORDS = ("hunter2", "s3cr3t", "P@ssw0rd!", "letmein123", "correct-horse-battery")
ASSIGNED = (
    "password is {}",
    "my password is: {}",
    "set password to {}",
    "changed the password to {}",
    "contraseña={}",
    '{{"contraseña": "{}"}}',
    "contrasena: {}",
    "senha={}",
    "mot_de_passe={}",
    "requirepass {}",
    "jdbc:sqlserver://h:1433;databaseName=x;user=sa;password={};encrypt=true",
    "jdbc:sqlserver://db.internal;databaseName=x;user=sa;password={}",
    "sqlserver://h\\SQLEXPRESS;user=sa;password={}",
    "tool --password {} run",
    "tool --password  {} run",
)

OTHERS = (
    ('"set-cookie": ["connect.sid=wmjl0shxjgtq60r3s9vqaovoum; Path=/"]', "wmjl0shxjgtq60r3s9vqaovoum"),
    ('{"X-Api-Key": ["a1b2c3d4e5f6a7b8"]}', "a1b2c3d4e5f6a7b8"),
    ('{"Authorization": ["Token a1b2c3d4e5f6a7b8"]}', "a1b2c3d4e5f6a7b8"),
    ("map[X-Api-Key:[abc123def456ghi789jk]]", "abc123def456ghi789jk"),
    (
        "aws configure set aws_secret_access_key " + "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY",
        "wJalrXUtnFEMI",
    ),
    ("Authorization: Bearer k3y-of-the-house", "k3y-of-the-house"),
    ("{Authorization: Token a1b2c3d4e5f6}", "a1b2c3d4e5f6"),
    ("<password>@home</password>", "@home"),
    ("imagePullSecrets: 9fQ2xL7vB4nK8mZ1cR5tW3yH", "9fQ2xL7vB4nK8mZ1cR5tW3yH"),
    ("call me at (11) 91234-5678", "91234-5678"),
    ("reach Ana on (21) 2345-6789 today", "2345-6789"),
    ("next=%2Fx%3Femail%3Dbob%40example.com", "bob%40example"),
    ("jumin=9911302917854", "9911302917854"),
    ("sent SMS to 030 901820", "901820"),
)

HARMLESS = (
    "  --no-password  never prompt for password",
    "  -w, --no-password        never prompt for password",
    "  -W, --password           force password prompt (should happen automatically)",
    "  --token  personal token of the user",
    "Authorization: Bearer ${TOKEN}",
    "Authorization: Bearer {token}",
    "Authorization: Bearer {{ token }}",
    "Authorization: Token <token>",
    'api_key = "your-api-key-here"',
    "token: your_token",
    "api_key: REPLACE_ME",
    "password: CHANGE_ME",
    '{"password": ["Too common"]}',
    '"keys": ["2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"]',
    "postgres://<user>:<password>@localhost/db",
    "postgres://<user>:<password>@localhost:5432/db",
    "existingSecret: my-release-postgresql",
    "imagePullSecrets: regcred",
    "secrets: inherit",
    "the password is case-sensitive",
    "the password is out-of-date",
    "send the password to user42",
    "hand the token to worker-1",
    "set the token to worker-1",
    "jdbc:sqlserver://h:1433;databaseName=x;user=sa;applicationName=me@work",
    'cookies: ["session", "theme"]',
    "glc_context_create_from_surface_and_window",
    "vercel_deployment_configuration",
    "sl.append(other)",
    "SCWILLBEAVAILABLEXYZ",
)


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("frame", FRAMES)
def test_a_token_is_hidden_wherever_it_stands(kind: str, frame: str) -> None:
    shown = redact_text(frame.format(TOKENS[kind]))

    assert TOKENS[kind][-12:] not in shown
    assert "<redacted:" in shown


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("form", ASSIGNED)
def test_an_ordinary_password_is_hidden_as_a_whole(form: str, password: str) -> None:
    shown = redact_text(form.format(password))

    assert password not in shown
    assert password[-5:] not in shown
    assert "<redacted:password>" in shown


@pytest.mark.parametrize(("text", "secret"), OTHERS)
def test_other_everyday_facts_are_hidden(text: str, secret: str) -> None:
    assert secret not in redact_text(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_help_placeholders_and_references_stay_whole(text: str) -> None:
    assert redact_text(text) == text
