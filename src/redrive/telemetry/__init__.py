# SPDX-License-Identifier: Apache-2.0
"""Metrics and traces of redrive, for Prometheus and OpenTelemetry.

    metrics = telemetry.Metrics("jobs.db")        # metrics.text() is what Prometheus scrapes; the extra `metrics`
    telemetry.trace()                             # a span per attempt, from submit to the last stage; the extra `otel`

    app = telemetry.TelemetryMiddleware(app, database="jobs.db")     # both, for any ASGI application

Nothing of either library is loaded before one of these is used. Workers that start later in this process are observed.
"""

from __future__ import annotations

import importlib
import typing
from importlib.util import find_spec

from redrive.errors import MissingExtraError

if typing.TYPE_CHECKING:
    from redrive.telemetry.metrics import Metrics
    from redrive.telemetry.middleware import TelemetryMiddleware
    from redrive.telemetry.tracing import trace

__all__ = ["Metrics", "TelemetryMiddleware", "trace"]


_NEEDS: typing.Final = {
    "Metrics": ("metrics", "prometheus_client", "metrics"),
    "TelemetryMiddleware": ("middleware", "", ""),
    "trace": ("tracing", "opentelemetry", "otel"),
}
"""The module of each name, the library that it needs, and the extra that brings that."""


if not typing.TYPE_CHECKING:  # Type checkers read the imports above, and report names that do not exist.

    def __getattr__(name: str) -> object:
        """Load a name when it is first used (PEP 562); without the library that it needs, name the extra that brings it."""
        if name not in _NEEDS:
            problem = f"module 'redrive.telemetry' has no attribute {name!r}"
            raise AttributeError(problem)
        module, library, extra = _NEEDS[name]
        if library and find_spec(library) is None:
            raise MissingExtraError(field=f"redrive.telemetry.{name}", library=library, extra=extra)
        return getattr(importlib.import_module(f"redrive.telemetry.{module}"), name)
