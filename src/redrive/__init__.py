# SPDX-License-Identifier: Apache-2.0
"""redrive: run work through stages and account for every failure.

Every public name is a name of this package; the documented submodules are `redrive.errors`, `redrive.sinks`,
`redrive.telemetry`, `redrive.testing` and `redrive.web`.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from redrive.client.connection import Redrive, connect
    from redrive.client.job import Job
    from redrive.core.backoff import Backoff, Jitter
    from redrive.core.batch import Batch
    from redrive.core.breaker import Breaker
    from redrive.core.budget import FailureBudget, FailureRule, RunThresholds
    from redrive.core.codeset import CodeSet, OwnCode
    from redrive.core.failure import Category, Code, Failure, Retryable, Severity
    from redrive.core.fingerprint import fingerprint
    from redrive.core.limit import Limit
    from redrive.core.policy import RetryPolicy, also
    from redrive.core.replay import ReplayRules
    from redrive.core.signals import Cancel, Fail, Finish, Retry, Skip, Snooze
    from redrive.core.verdict import Verdict
    from redrive.engine.classifier import Classifier, Rule, add_rule, classify
    from redrive.engine.guard.events import CallEvent
    from redrive.engine.guard.guard import Guard, guard
    from redrive.engine.pipeline.context import Context
    from redrive.engine.pipeline.pipeline import Event, Pipeline
    from redrive.engine.pipeline.stage import stage
    from redrive.engine.runs.items import Item
    from redrive.engine.runs.runs import RunReport
    from redrive.errors import BreakerOpenError, ConfigurationError, RedriveError
    from redrive.redaction.process import redact, redact_mapping, register_secret

__all__ = [  # noqa: RUF022 - grouped by what they are for.
    # Classify failures
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
    # Policies
    "Backoff",
    "Batch",
    "Breaker",
    "Jitter",
    "Limit",
    "RetryPolicy",
    "also",
    # Signals of a function
    "Cancel",
    "Fail",
    "Finish",
    "Retry",
    "Skip",
    "Snooze",
    # Guarded calls
    "CallEvent",
    "Guard",
    "guard",
    # Durable work
    "Context",
    "Event",
    "FailureBudget",
    "FailureRule",
    "Item",
    "Job",
    "Pipeline",
    "Redrive",
    "ReplayRules",
    "RunReport",
    "RunThresholds",
    "connect",
    "stage",
    # Redaction
    "redact",
    "redact_mapping",
    "register_secret",
    # Errors
    "BreakerOpenError",
    "ConfigurationError",
    "RedriveError",
]

_NAMES_BY_MODULE: typing.Final = {
    "redrive.client.connection": "Redrive connect",
    "redrive.client.job": "Job",
    "redrive.core.backoff": "Backoff Jitter",
    "redrive.core.batch": "Batch",
    "redrive.core.breaker": "Breaker",
    "redrive.core.budget": "FailureBudget FailureRule RunThresholds",
    "redrive.core.codeset": "CodeSet OwnCode",
    "redrive.core.failure": "Category Code Failure Retryable Severity",
    "redrive.core.fingerprint": "fingerprint",
    "redrive.core.limit": "Limit",
    "redrive.core.policy": "RetryPolicy also",
    "redrive.core.replay": "ReplayRules",
    "redrive.core.signals": "Cancel Fail Finish Retry Skip Snooze",
    "redrive.core.verdict": "Verdict",
    "redrive.engine.classifier": "Classifier Rule add_rule classify",
    "redrive.engine.guard.events": "CallEvent",
    "redrive.engine.guard.guard": "Guard guard",
    "redrive.engine.pipeline.context": "Context",
    "redrive.engine.pipeline.pipeline": "Event Pipeline",
    "redrive.engine.pipeline.stage": "stage",
    "redrive.engine.runs.items": "Item",
    "redrive.engine.runs.runs": "RunReport",
    "redrive.errors": "BreakerOpenError ConfigurationError RedriveError",
    "redrive.redaction.process": "redact redact_mapping register_secret",
}
_MODULES: typing.Final = {
    name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()
}
_SUBMODULES: typing.Final = frozenset({"errors", "sinks", "telemetry", "testing", "web"})


if not typing.TYPE_CHECKING:  # Type checkers read the imports above, and report names that do not exist.

    def __getattr__(name: str) -> object:
        """Load a public name when it is first used (PEP 562), so that `from redrive import guard` does not load the store."""
        if name in _MODULES:
            value: object = getattr(importlib.import_module(_MODULES[name]), name)
            globals()[name] = value
            return value
        if name in _SUBMODULES:
            return importlib.import_module(f"redrive.{name}")
        problem = f"module 'redrive' has no attribute {name!r}"
        raise AttributeError(problem)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
