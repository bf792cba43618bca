# SPDX-License-Identifier: Apache-2.0
"""Reports for a program: the attempts of many jobs summed up.

The answers are the values that `redrive report` shows. They are read from the store just then.
"""

from __future__ import annotations

from collections.abc import Sequence

from redrive.client.awaited import AsyncFace, Face, awaited
from redrive.ops.reports import reports
from redrive.ops.reports.reports import Account, Bucket, ErrorReport, Scope
from redrive.store.statements.reports import StageReport


class Reports(Face):
    """Many jobs summed up: of everything, one pipeline, one stage of it, or one run.

    A pipeline, a stage or a run that is not known here raises ConfigurationError or RunError, which name those that are.
    """

    def retries(
        self, *, pipeline: str | None = None, stage: str | None = None, run: int | None = None
    ) -> Sequence[Bucket]:
        """Count jobs by how many retries they needed: 0, 1, 2, and 3 or more."""
        return reports.retry_histogram(self._store, Scope(pipeline=pipeline, stage=stage, run=run))

    def errors(
        self, *, pipeline: str | None = None, stage: str | None = None, run: int | None = None
    ) -> Sequence[ErrorReport]:
        """Rank the codes of failed attempts, the most frequent first."""
        return reports.error_ranking(self._store, Scope(pipeline=pipeline, stage=stage, run=run))

    def stages(
        self, *, pipeline: str | None = None, stage: str | None = None, run: int | None = None
    ) -> Sequence[StageReport]:
        """Return how reliable each stage is, in the order of the stages."""
        return reports.stage_reliability(self._store, Scope(pipeline=pipeline, stage=stage, run=run))

    def account(self, *, pipeline: str | None = None, run: int | None = None) -> Account:
        """Account for every job of a pipeline or a run; `adds_up` is True if none is missing and none is counted twice."""
        return reports.account(self._store, Scope(pipeline=pipeline, run=run))


class AsyncReports(AsyncFace[Reports]):
    """Reports for async code; see `Reports`."""

    retries = awaited(Reports.retries)
    errors = awaited(Reports.errors)
    stages = awaited(Reports.stages)
    account = awaited(Reports.account)
