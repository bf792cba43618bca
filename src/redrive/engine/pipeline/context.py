# SPDX-License-Identifier: Apache-2.0
"""The context of an attempt: what a stage can read about its job, and report about its own work.

Reports are kept in memory until the stage's outcome is committed, and committed with it: notes go into the attempt's row, children
exist if and only if the stage's own checkpoint does. Only `progress` is written earlier, with the next heartbeat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from redrive.core.arguments import flag, number
from redrive.core.signals import Cancel
from redrive.errors import ConfigurationError
from redrive.store.records import Child

if TYPE_CHECKING:
    from redrive.engine.pipeline.pipeline import Pipeline

NOTES_MAX: Final = 50
NOTE_MAX: Final = 500
TEXT_MAX: Final = 10_000
"""Characters that are read of one note or progress; what is kept is shorter, and cut only after redaction."""


class SubmittedChild(Struct, frozen=True, eq=False):
    """A job that a stage has submitted; it exists once the stage's outcome is committed."""

    child: Child

    @property
    def id(self) -> int | None:
        """The id of the job, in the worker's own process; None until the stage's outcome is committed."""
        return self.child.stored[0] if self.child.stored else None


class _About(Struct, frozen=True, array_like=True):
    """What a job was submitted with, besides its payload."""

    key: str | None = None
    owner: str | None = None
    run: int | None = None
    origin: str | None = None


_DECODE_ABOUT: Final = msgspec.json.Decoder(_About).decode


def origin_of(job: int, installations: Iterable[tuple[str, int]]) -> str:
    """Return what names a job among those of all databases: where it was made, and its id there."""
    return f"{next((name for name, first in installations if job >= first), 'none')}-{job}"


class Context(Struct, kw_only=True, eq=False, gc=False):
    """What a stage can read and report about its job. A parameter annotated with this class gets it."""

    job_id: int
    pipeline: str
    stage: str
    attempt: int
    """The number of this try in the stage's budget, from 1; holds and crashes repeat it."""
    round: int = 1
    """1, and one more after every replay."""
    restarts: int = 0
    """How often the job began anew at its first stage."""
    deadline: datetime | None = None
    """When the stage's timeout ends this attempt; None without one."""
    is_cancelled: bool = False
    """True when somebody asked to cancel the job; a long stage should stop then."""
    about: bytes | None = None
    """Key, owner and run of the job as JSON; read them by their names."""
    payload: bytes = b"null"
    """What the job was submitted with, as JSON."""
    notes: dict[str, str] = {}
    children: list[Child] = []
    progress_text: str | None = None
    """What the stage reported last, not redacted yet."""
    limits: tuple[str, ...] = ()
    """The names of the stage's limits."""
    usage: dict[str, float] = {}
    """What the stage reported to have used of its limits."""
    transaction: object = None
    """The connection of a transactional stage; read it as `connection`."""
    installations: tuple[tuple[str, int], ...] = ()
    """The ids of the database with the first job of each, the present one first."""

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this stage of this job, so that an effect can be recognised as already done.

        Different for every other job, of other databases too. A copy of the database and an import keep it; only a full restart
        makes another one.
        """
        origin = self._about().origin or origin_of(self.job_id, self.installations)
        key = f"{self.pipeline}:{origin}:{self.stage}"
        return f"{key}:{self.restarts}" if self.restarts else key

    @property
    def connection(self) -> Any:
        """The connection of a transactional stage: of psycopg, async for an async stage; its transaction ends with the stage.

        Raises:
            ConfigurationError: the stage is not transactional.
        """
        if self.transaction is None:
            raise ConfigurationError(
                field="ctx.connection",
                value=self.stage,
                rule="is for transactional stages",
                fix="Declare it with @stage(transactional=True).",
            )
        return self.transaction

    @property
    def key(self) -> str | None:
        """The key the job was submitted with; None without one."""
        return self._about().key

    @property
    def owner(self) -> str | None:
        """The owner the job was submitted with; None without one."""
        return self._about().owner

    @property
    def run_id(self) -> int | None:
        """The run the job is an item of; None if it is none."""
        return self._about().run

    @property
    def payload_hash(self) -> str:
        """The SHA-256 of the payload as it is stored: the same in every stage and every round."""
        return hashlib.sha256(self.payload).hexdigest()

    def heartbeat(self) -> None:
        """Stop here if the job was cancelled. The lease itself is kept by the worker; a stage cannot lose it by being slow."""
        if self.is_cancelled:
            raise Cancel(reason="the job was cancelled while it ran")

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Report the progress of this stage; `redrive job show` shows it from the next heartbeat on."""
        share = f"{done:g}" if total is None else f"{done:g} of {total:g}"
        self.progress_text = f"{share} {text}".strip()[:TEXT_MAX]
        self.heartbeat()

    def note(self, name: str, value: object) -> None:
        """Keep a fact about this attempt, such as the request id of a provider; redacted, cut, and kept with the attempt."""
        if len(self.notes) >= NOTES_MAX and name not in self.notes:
            raise ConfigurationError(
                field="ctx.note",
                value=name,
                rule=f"keeps at most {NOTES_MAX} notes for an attempt",
                fix="Put details into a log.",
            )
        self.notes[str(name)] = str(value)[:TEXT_MAX]

    def used(self, limit: str, amount: float) -> None:
        """Report how much of a limit this attempt really used, such as the tokens of an answer; it replaces its `cost`."""
        if limit not in self.limits:
            raise ConfigurationError(
                field="ctx.used",
                value=limit,
                rule=f"must be a limit of this stage: {', '.join(self.limits) or 'it has none'}",
                fix="Give the name of one of its limits; one that is by calls needs no report.",
            )
        given = number(amount)
        if given is None or given < 0:
            raise ConfigurationError(
                field=f"ctx.used({limit})",
                value=amount,
                rule="must be a number of at least 0",
                fix="Report the sum.",
            )
        self.usage[limit] = given

    def submit(
        self,
        pipeline: Pipeline,
        payload: object,
        *,
        key: str | None = None,
        run_at: datetime | None = None,
        delay: timedelta | float | None = None,
        priority: int = 5,
        owner: str | None = None,
        join_run: bool = False,
    ) -> SubmittedChild:
        """Submit another job that exists if and only if this stage's outcome is committed; its id is known from then on.

        With `join_run` it belongs to the run of this job, if it has one, and counts in it.
        """
        from redrive.engine.pipeline.submission import new_job

        made = new_job(pipeline, payload, key=key, run_at=run_at, delay=delay, priority=priority, owner=owner)
        names = tuple(stage.name for stage in pipeline.stages)
        child = Child(pipeline.name, names, made, joins_run=flag("ctx.submit(join_run)", join_run))
        self.children.append(child)
        return SubmittedChild(child)

    def _about(self) -> _About:
        return _About() if self.about is None else _DECODE_ABOUT(self.about)
