# SPDX-License-Identifier: Apache-2.0
"""Which job a log line belongs to: every record made while a stage runs carries its job, pipeline, stage and attempt.

The standard library's own way: a context variable holds the present job, and the record factory puts it into each record, so that
any format may use `%(job_id)s %(pipeline)s %(stage)s %(attempt)s`, and `%(job)s` for all of it. Outside a stage they are empty.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from redrive.engine.context import Context

CURRENT_JOB: ContextVar[Context | None] = ContextVar("redrive_job", default=None)


class _JobRecord(logging.LogRecord):
    """A record that knows its job."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - whatever logging passes.
        context = CURRENT_JOB.get()
        self.job_id = "" if context is None else context.job_id
        self.pipeline = "" if context is None else context.pipeline
        self.stage = "" if context is None else context.stage
        self.attempt = "" if context is None else context.attempt
        self.job = (
            ""
            if context is None
            else f"[job {context.job_id} {context.pipeline}.{context.stage} attempt {context.attempt}] "
        )


_lock = Lock()
_users = 0


@contextmanager
def jobs_in_log_records() -> Generator[None]:
    """Let records carry their job for as long as any worker runs; a factory somebody else installed is left alone."""
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
