# SPDX-License-Identifier: Apache-2.0
"""Traces: one OpenTelemetry span per attempt, below the span in which its job was submitted.

Needs opentelemetry-api (the extra `otel`), which nothing else imports. The application configures with the SDK
where spans are exported; without it they are dropped. The submitter's traceparent is stored with the job, so that every stage, and
every job a stage submits, belongs to the same trace, in whatever process it runs. No value, message or stack of a job enters a
span.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Token
from importlib.metadata import version
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import trace as spans
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from redrive.engine.observers import AttemptFacts, Observer, install

_FORMAT: Final = TraceContextTextMapPropagator()
_HEADER: Final = "traceparent"
# Looked up once: it is read from a file.
_VERSION: Final = version("redrive")
_FAILED: Final = frozenset({"retry", "dead", "crashed"})


def trace() -> None:
    """Switch traces on in this process, for all submissions, and for workers that start from now on."""
    install(_TRACES)


def span_context(traceparent: str | None) -> Context:
    """Return a context below a remote span; an empty one without it, or if it cannot be read."""
    return _FORMAT.extract({} if traceparent is None else {_HEADER: traceparent}, context=Context())


class _Traces(Observer):
    """Makes a span for each attempt."""

    process_setup = "redrive.telemetry.tracing:trace"

    def attempt_started(self, facts: AttemptFacts) -> _AttemptSpan:
        """Start the span, and make it the current one where the stage runs."""
        span = tracer().start_span(
            f"{facts.pipeline}.{facts.stage}",
            context=span_context(facts.trace),
            kind=SpanKind.CONSUMER,
            attributes={
                "redrive.job_id": facts.job_id,
                "redrive.pipeline": facts.pipeline,
                "redrive.stage": facts.stage,
                "redrive.attempt": facts.attempt,
                "redrive.dispatch": facts.dispatch,
                "redrive.round": facts.round,
            },
        )
        return _AttemptSpan(span, contexts.attach(spans.set_span_in_context(span)))

    def trace_of_caller(self) -> str | None:
        carrier: dict[str, str] = {}
        _FORMAT.inject(carrier)
        return carrier.get(_HEADER)

    def trace_resumed(self, trace: str) -> Callable[[], None]:
        token = contexts.attach(span_context(trace))
        return lambda: contexts.detach(token)


class _AttemptSpan:
    """The span of one attempt."""

    def __init__(self, span: Span, token: Token[Context]) -> None:
        self._span = span
        self._token = token

    def returned(self) -> None:
        """Leave the span; it ends when it is known what becomes of the job."""
        contexts.detach(self._token)

    def settled(self, outcome: str, code: str | None) -> None:
        self._span.set_attribute("redrive.outcome", outcome)
        if code is not None:
            self._span.set_attribute("redrive.code", code)
        if outcome in _FAILED:
            self._span.set_status(Status(StatusCode.ERROR, code))
        self._span.end()


_TRACES: Final = _Traces()


def tracer() -> spans.Tracer:
    """Return the tracer of redrive; asked for each time, because the application may configure the SDK later."""
    return spans.get_tracer("redrive", _VERSION)
