# SPDX-License-Identifier: Apache-2.0
"""How a process that runs stages logs: as its worker does, each record with its job."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

import pytest

from redrive.cli.output.logs import LineFormatter
from redrive.engine.pipeline.context import Context
from redrive.engine.worker import job_logging
from redrive.engine.worker.job_logging import CURRENT_JOB, LogSetup, Writer, log_as, present_setup

FORM = "%(levelname)s %(name)s %(job)s%(message)s"


class Stranger(logging.Formatter):
    """A class that needs more than a format to be made."""

    def __init__(self, fields: int) -> None:
        super().__init__(FORM)
        self.fields = fields


@pytest.fixture(autouse=True)
def root() -> Generator[logging.Logger]:
    root = logging.getLogger()
    level, disabled = root.level, root.manager.disable
    yield root
    # Those of pytest come and go by themselves, and are of other classes.
    for handler in [each for each in root.handlers if type(each) is logging.StreamHandler]:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.disable(disabled)
    logging.getLogger("apart.loud").setLevel(logging.NOTSET)


def heard(setup: LogSetup, message: str = "hello") -> None:
    """Log a line as the other process would, from inside a stage."""
    log_as(setup)
    token = CURRENT_JOB.set(Context(job_id=7, pipeline="shop", stage="fetch", attempt=2))
    try:
        logging.getLogger("app").info("%s", message)
    finally:
        CURRENT_JOB.reset(token)
        job_logging._count(-1)


def handled(stream: TextIO | None = None, formatter: logging.Formatter | None = None) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    return handler


def test_a_process_logs_as_its_worker_does_and_names_the_job(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    root.handlers.clear()
    root.addHandler(handled(sys.stderr, LineFormatter(FORM, defaults={"job": ""})))
    root.setLevel(logging.INFO)
    logging.getLogger("apart.loud").setLevel(logging.DEBUG)
    setup = present_setup()
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    logging.getLogger("apart.loud").setLevel(logging.NOTSET)

    heard(setup, "a \x1b[31m b")

    assert capsys.readouterr().err == "INFO app [job 7 shop.fetch attempt 2] a \\x1b[31m b\n"
    assert logging.getLogger("apart.loud").level == logging.DEBUG


@pytest.mark.parametrize(
    ("formatter", "line"),
    [
        (None, "hello"),
        (logging.Formatter("{job}{message}", style="{"), "[job 7 shop.fetch attempt 2] hello"),
        (logging.Formatter("$job_id $message", style="$"), "7 hello"),
        (Stranger(3), "INFO app [job 7 shop.fetch attempt 2] hello"),
    ],
)
def test_the_format_is_the_same_in_every_style(
    root: logging.Logger,
    capsys: pytest.CaptureFixture[str],
    formatter: logging.Formatter | None,
    line: str,
) -> None:
    root.handlers.clear()
    root.addHandler(handled(sys.stdout, formatter))
    root.setLevel(logging.INFO)
    setup = present_setup()
    root.handlers.clear()

    heard(setup)

    assert capsys.readouterr().out == f"{line}\n"


def test_a_format_that_nobody_can_read_never_keeps_a_process_from_starting(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(level=0, is_output=False, formatter=logging.Formatter, form="no field", dates=None)

    heard(LogSetup(level=logging.INFO, levels={}, disabled=0, writer=writer))

    assert capsys.readouterr().err == "hello\n"


def test_a_terminal_comes_before_files_and_a_level_of_a_handler_holds(
    root: logging.Logger, tmp_path: Path
) -> None:
    file = logging.FileHandler(tmp_path / "log")
    terminal = handled(io.StringIO(), logging.Formatter(FORM))
    terminal.setLevel(logging.ERROR)
    root.handlers[:] = [logging.NullHandler(), file, terminal]
    root.setLevel(logging.INFO)
    setup = present_setup()
    # One that is closed opens its file again for whatever is logged meanwhile.
    root.handlers.remove(file)
    file.close()

    assert setup.writer is not None
    assert (setup.writer.form, setup.writer.level, setup.writer.is_output) == (FORM, logging.ERROR, False)


def test_where_nobody_set_up_logging_a_process_does_not_either(root: logging.Logger) -> None:
    root.handlers.clear()
    logging.disable(logging.INFO)
    setup = present_setup()
    logging.disable(logging.NOTSET)

    heard(setup)

    assert setup.writer is None
    assert root.handlers == []
    assert root.manager.disable == logging.INFO
