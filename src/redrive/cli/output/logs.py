# SPDX-License-Identifier: Apache-2.0
"""How a worker's log looks on standard error: lines for people, or one JSON object a line; and whose lines are in it.

Both escape control characters: what is logged may come from untrusted sources.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, cast

import msgspec

from redrive.cli.output.terminal import escaped, escaped_json
from redrive.core.units import instant
from redrive.engine.pipeline.codec import storable
from redrive.engine.pipeline.pipeline import Pipeline

LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(job)s%(message)s"
OWN: Final = "redrive"
_JOB: Final = ("job_id", "pipeline", "stage", "attempt")


class LineFormatter(logging.Formatter):
    """Formats log records as lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record with its stack, escaped."""
        return escaped(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON: time, level, logger, message, the job if it has one, and the facts of the worker's own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        members: dict[str, object] = {
            "time": instant(record.created).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": storable(record.getMessage()),
        }
        members |= {name: value for name in _JOB if (value := getattr(record, name, ""))}
        members |= cast("dict[str, object]", getattr(record, "facts", {}))
        if record.exc_info:
            members["error"] = storable(self.formatException(record.exc_info))
        return escaped_json(msgspec.json.encode(members, enc_hook=str).decode())


def log_to_standard_error(level: str | None, form: str = "text") -> None:
    """Log to stderr, each line with its job; without a level, redrive's own lines from `info` on and warnings of all others."""
    writer = logging.StreamHandler()
    # Records from before the worker starts have no job.
    made = JsonFormatter if form == "json" else LineFormatter
    writer.setFormatter(made(LOG_FORMAT, defaults={"job": ""}))
    logging.basicConfig(level=(level or "warning").upper(), handlers=[writer], force=True)
    logging.getLogger(OWN).setLevel(logging.INFO if level is None else logging.NOTSET)


def log_own_packages(pipelines: Iterable[Pipeline]) -> None:
    """Log from `info` on what the packages of these pipelines log under their own names."""
    for pipeline in pipelines:
        for stage in pipeline.stages:
            logging.getLogger(stage.fn.__module__.partition(".")[0]).setLevel(logging.INFO)
