# SPDX-License-Identifier: Apache-2.0
"""Pipelines whose stages say secrets in every way a stage can: what redrive writes down of it must hold none.

A secret comes from the environment, from the payload, or from elsewhere (a file that FAULTS_SECRETS names): then it is known for one
only by its form.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote

from msgspec import Struct

from redrive import Backoff, Cancel, Context, Fail, Jitter, Pipeline, Retry, RetryPolicy, Snooze, stage
from redrive.engine.pipeline.pipeline import Event

TWICE = RetryPolicy(2, Backoff.fixed(0.01, jitter=Jitter.none()), snooze_max=1)
SOURCES = ("environment", "password", "payload", "elsewhere")


class Said(Struct, frozen=True):
    """How a job is to say which secret."""

    place: str
    source: str
    secret: str = ""
    """What the payload itself holds, when the secret is to come from there."""


def secret_of(said: Said) -> str:
    match said.source:
        case "environment":
            return os.environ["SHOP_API_KEY"]
        case "password":
            return os.environ["SHOP_DB_PASSWORD"]
        case "payload":
            return said.secret
        case _:
            return str(
                json.loads(Path(os.environ["FAULTS_SECRETS"]).read_text(encoding="utf-8"))["elsewhere"]
            )


def as_text(secret: str, _ctx: Context) -> None:
    raise RuntimeError(f"the login with {secret} was refused")


def as_retried(secret: str, _ctx: Context) -> None:
    raise ConnectionResetError(104, f"reset while sending {secret}")


def as_note(secret: str, ctx: Context) -> None:
    ctx.note("answer", f"token {secret} is unknown")
    raise ValueError("see the note")


def as_note_of_a_success(secret: str, ctx: Context) -> None:
    ctx.note("answer", f"token {secret} is fine")


def as_cause(secret: str, _ctx: Context) -> None:
    raise RuntimeError("the call failed") from ValueError(f"bad key {secret}")


def as_context(secret: str, _ctx: Context) -> None:
    try:
        raise ValueError(f"bad key {secret}")
    except ValueError:
        raise RuntimeError("the call failed")  # noqa: B904


def as_note_of_the_error(secret: str, _ctx: Context) -> None:
    error = RuntimeError("the call failed")
    error.add_note(f"it was made with {secret}")
    raise error


def as_group(secret: str, _ctx: Context) -> None:
    raise ExceptionGroup("some failed", [ValueError(f"bad key {secret}"), KeyError(secret)])


def as_url(secret: str, _ctx: Context) -> None:
    raise URLError(
        f"cannot reach https://shop:{quote(secret, safe='')}@api.example.com/v1?api_key={quote(secret, safe='')}"
    )


def as_file(secret: str, _ctx: Context) -> None:
    Path(f"/nowhere/{secret}.pem").read_bytes()


def as_progress(secret: str, ctx: Context) -> None:
    ctx.progress(1, 2, f"signing in with {secret}")
    # Written with the next heartbeat.
    threading.Event().wait(1.0)
    raise RuntimeError("the call failed")


def as_fail(secret: str, _ctx: Context) -> None:
    raise Fail("LOGIN_REFUSED", f"the key {secret} was refused")


def as_cancel(secret: str, _ctx: Context) -> None:
    raise Cancel(reason=f"the key {secret} was withdrawn")


def as_retry(secret: str, _ctx: Context) -> None:
    raise Retry(0.01, message=f"the key {secret} is not ready")


def as_snooze(secret: str, ctx: Context) -> None:
    raise Snooze(0.01, message=f"the key {secret} is not ready")


PLACES = {
    each.__name__: each
    for each in (
        *(as_text, as_retried, as_note, as_note_of_a_success, as_cause, as_context, as_note_of_the_error),
        *(as_group, as_url, as_file, as_progress, as_fail, as_cancel, as_retry, as_snooze),
    )
}


@stage(retry=TWICE)
def say(said: Said, ctx: Context) -> str:
    PLACES[said.place](secret_of(said), ctx)
    return "done"


@stage(retry=TWICE, process=True)
def say_elsewhere(said: Said, ctx: Context) -> str:
    PLACES[said.place](secret_of(said), ctx)
    return "done"


@stage(retry=TWICE)
async def say_on_the_loop(said: Said, ctx: Context) -> str:
    PLACES[said.place](secret_of(said), ctx)
    return "done"


def tell(event: Event) -> None:
    """A hook that says the secrets it can know of."""
    raise RuntimeError(f"could not page anybody with {os.environ['SHOP_API_KEY']} about {event.message}")


leaky = Pipeline("leaky", [say], on_dead=tell)
leaky_process = Pipeline("leaky_process", [say_elsewhere])
leaky_loop = Pipeline("leaky_loop", [say_on_the_loop])
