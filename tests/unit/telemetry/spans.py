# SPDX-License-Identifier: Apache-2.0
"""What tests of traces share: spans in memory, and stages that a process can import."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_trace_id

from redrive import Context, Pipeline, stage, telemetry
from redrive.engine.observers import uninstall
from redrive.telemetry import tracing


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @contextmanager
    def caller(self) -> Generator[str]:
        """Be in a span, as a request would be; yield the id of its trace."""
        with self.provider.get_tracer("test").start_as_current_span("caller") as span:
            yield format_trace_id(span.get_span_context().trace_id)

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found


@contextmanager
def spans_in_memory(monkeypatch: pytest.MonkeyPatch) -> Generator[Spans]:
    """Switch traces on, with spans that are kept here."""
    spans = Spans()
    monkeypatch.setattr(tracing, "tracer", lambda: spans.provider.get_tracer("redrive"))
    telemetry.trace()
    try:
        yield spans
    finally:
        uninstall(tracing._TRACES)


def is_below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """Return whether one span was started in another."""
    assert span.context is not None
    assert parent.context is not None
    return (
        span.parent is not None
        and span.parent.span_id == parent.context.span_id
        and span.context.trace_id == parent.context.trace_id
    )


@stage
def last(number: int) -> int:
    return number


CHILD = Pipeline("child", [last])


@stage(process=True)
def submits(number: int, context: Context) -> int:
    context.submit(CHILD, number)
    return number


PARENT = Pipeline("parent", [submits])
