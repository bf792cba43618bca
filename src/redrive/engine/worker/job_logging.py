# SPDX-License-Identifier: Apache-2.0
"""Which job a log line belongs to: every record made while a stage runs carries its job, pipeline, stage and attempt.

As the standard library intends it, a context variable holds the present job, and the record factory adds it to each record: any
format may use `%(job_id)s %(pipeline)s %(stage)s %(attempt)s`, and `%(job)s` for all of it. Outside a stage they are empty;
in a batch of several jobs there is no one job and attempt, and `%(job)s` has how many they are.
A process that runs stages for a worker gets the worker's settings, and writes to standard error or output itself.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Final, cast

from redrive.engine.pipeline.context import Context

FIELDS: Final = ("job_id", "pipeline", "stage", "attempt", "job")

CURRENT_JOB: ContextVar[Context | None] = ContextVar("redrive_job", default=None)
"""The job whose stage runs; None outside a stage, and in a batch of several jobs."""
CURRENT_CALL: ContextVar[tuple[Context, ...]] = ContextVar("redrive_call", default=())
"""The jobs of the batch whose stage runs; empty for every other stage."""


class _JobRecord(logging.LogRecord):
    """A record with the present job."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - whatever logging passes.
        context = CURRENT_JOB.get()
        call = () if context is not None else CURRENT_CALL.get()
        any_of = call[0] if call else context
        self.job_id = "" if context is None else context.job_id
        self.pipeline = "" if any_of is None else any_of.pipeline
        self.stage = "" if any_of is None else any_of.stage
        self.attempt = "" if context is None else context.attempt
        self.job = ""
        if context is not None:
            self.job = f"[job {context.job_id} {context.pipeline}.{context.stage} attempt {context.attempt}] "
        elif any_of is not None:
            self.job = f"[{len(call)} jobs {any_of.pipeline}.{any_of.stage}] "


_lock = Lock()
_users = 0


@contextmanager
def jobs_in_log_records() -> Generator[None]:
    """Let records carry their job for as long as any worker runs; a factory of the application is left alone."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    global _users  # noqa: PLW0603 - under the lock.
    with _lock:
        _users += change
        present = logging.getLogRecordFactory()
        if _users and present is logging.LogRecord:
            logging.setLogRecordFactory(_JobRecord)
        elif not _users and present is _JobRecord:
            logging.setLogRecordFactory(logging.LogRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSetup:
    """How a process logs, as values that can be sent to another process."""

    level: int
    levels: Mapping[str, int]
    """The levels of loggers that have one of their own."""
    disabled: int
    """Nothing up to this level is logged at all."""
    writer: Writer | None
    """None when the root logger has no handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Where lines go, and how they look."""

    level: int
    is_output: bool
    """Whether it is standard output instead of standard error."""
    formatter: type[logging.Formatter]
    form: str | None
    dates: str | None


def present_setup() -> LogSetup:
    """Return how this process logs. Files and services are not shared between processes: those lines go to standard error."""
    root = logging.getLogger()
    known = {name: one for name, one in [*root.manager.loggerDict.items()] if isinstance(one, logging.Logger)}
    handlers = sorted(root.handlers, key=_distance)
    return LogSetup(
        level=root.level,
        levels={name: one.level for name, one in known.items() if one.level != logging.NOTSET},
        disabled=root.manager.disable,
        writer=_writer_of(handlers[0]) if handlers else None,
    )


def log_as(setup: LogSetup) -> None:
    """Make this process log as another one does, each record with its job."""
    _count(1)
    root = logging.getLogger()
    root.setLevel(setup.level)
    for name, level in setup.levels.items():
        logging.getLogger(name).setLevel(level)
    logging.disable(setup.disabled)
    if setup.writer is not None:
        handler = logging.StreamHandler(sys.stdout if setup.writer.is_output else sys.stderr)
        handler.setLevel(setup.writer.level)
        handler.setFormatter(_formatter(setup.writer))
        root.addHandler(handler)


def _distance(handler: logging.Handler) -> int:
    """Return how far a handler is from what another process can do as well: write to a terminal."""
    if isinstance(handler, logging.FileHandler):
        return 1
    return 0 if isinstance(handler, logging.StreamHandler) else 2


def _writer_of(handler: logging.Handler) -> Writer:
    formatter = handler.formatter or logging.Formatter()
    kind = type(formatter)
    # A formatter of a foreign class cannot be made anew; its format can.
    is_known = kind.__module__.partition(".")[0] in {"logging", "redrive"}
    return Writer(
        level=handler.level,
        is_output=getattr(handler, "stream", None) is sys.stdout,
        formatter=kind if is_known else logging.Formatter,
        form=cast("str | None", getattr(formatter, "_fmt", None)),
        dates=formatter.datefmt,
    )


def _formatter(writer: Writer) -> logging.Formatter:
    for style in ("%", "{", "$"):
        try:
            return writer.formatter(writer.form, writer.dates, style, defaults=dict.fromkeys(FIELDS, ""))
        except ValueError:
            # The format is written in another style.
            continue
    return logging.Formatter()
