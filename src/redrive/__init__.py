# SPDX-License-Identifier: Apache-2.0
"""redrive: run work through stages and account for every failure.

Where things are:

    core/      what went wrong and what to do about it, as pure functions over frozen values
    rules/     what each client library's errors mean, one small file per library
    store/     where jobs live
    engine/    the imperative shell: clocks, the classifier, guard, pipelines, the worker, the connection
    ops/       what operators do: look, judge, replay, pause, check, prune, back up
    sinks/     where dead letters go besides: files, a webhook
    client     the connection a program holds in its hand
    testing/   virtual time, pipelines without a store, injected faults, the conformance suite of stores
    cli/       the `redrive` command

Everything a user needs is a name of this package; the documented submodules are `redrive.errors`, `redrive.sinks` and
`redrive.testing`.
"""

from __future__ import annotations

from redrive.client.connection import Redrive, connect
from redrive.core.backoff import Backoff, Jitter
from redrive.core.breaker import Breaker
from redrive.core.budget import FailureBudget
from redrive.core.codeset import CodeSet, OwnCode
from redrive.core.failure import Category, Code, Failure, Retryable, Severity
from redrive.core.fingerprint import fingerprint
from redrive.core.policy import RetryPolicy
from redrive.core.replay import ReplayRules
from redrive.core.signals import Cancel, Fail, Retry, Snooze
from redrive.core.verdict import Verdict
from redrive.engine.classifier import Classifier, Rule, add_rule, classify
from redrive.engine.guard.events import CallEvent
from redrive.engine.guard.guard import Guard, guard
from redrive.engine.job import Job
from redrive.engine.pipeline.context import Context
from redrive.engine.pipeline.pipeline import Event, Pipeline
from redrive.engine.pipeline.stage import stage
from redrive.engine.runs.runs import RunReport
from redrive.errors import BreakerOpenError, ConfigurationError, RedriveError
from redrive.redaction.process import redact, redact_mapping, register_secret

__all__ = [  # noqa: RUF022 - grouped by what they are for.
    # What went wrong
    "Category",
    "Classifier",
    "Code",
    "CodeSet",
    "Failure",
    "OwnCode",
    "Retryable",
    "Rule",
    "Severity",
    "Verdict",
    "add_rule",
    "classify",
    "fingerprint",
    # What to do about it
    "Backoff",
    "Breaker",
    "Jitter",
    "RetryPolicy",
    # What a function may ask for
    "Cancel",
    "Fail",
    "Retry",
    "Snooze",
    # Doing it
    "CallEvent",
    "Guard",
    "guard",
    # Durable work
    "Context",
    "Event",
    "FailureBudget",
    "Job",
    "Pipeline",
    "Redrive",
    "ReplayRules",
    "RunReport",
    "connect",
    "stage",
    # Keeping secrets
    "redact",
    "redact_mapping",
    "register_secret",
    # What redrive raises
    "BreakerOpenError",
    "ConfigurationError",
    "RedriveError",
]
