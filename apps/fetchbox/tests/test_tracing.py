# SPDX-License-Identifier: Apache-2.0
"""Traces of a worker, in a process of its own: a provider belongs to a whole process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from apps.fetchbox.tests.servers import Origin

PROGRAM = """
import sys
from pathlib import Path
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from apps.fetchbox.pipeline import pipeline_of
from apps.fetchbox.settings import Settings
from apps.fetchbox.tests.box import task
from apps.tracing import trace_if_configured
from redrive import connect

assert not trace_if_configured()
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
assert trace_if_configured()
settings = Settings(folder=sys.argv[1], allow_private=True)
settings.root.mkdir()
pipeline = pipeline_of(settings)
with connect(settings.database) as rd:
    rd.submit(pipeline, task(url=sys.argv[2]))
    rd.work([pipeline], until_idle=True)
spans = {span.name: span for span in exporter.get_finished_spans()}
call = spans["GET"]
assert call.parent.span_id == spans["fetchbox.download"].context.span_id, spans
assert "secret" not in "".join(span.to_json() for span in spans.values())
print(call.attributes.get("http.url"))
"""


def test_http_calls_hang_below_the_attempt_and_spans_have_no_query(origin: Origin, tmp_path: Path) -> None:
    url = f"{origin.url}/file/traced"

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), f"{url}?token=secret"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ended.stdout == f"{url}\n", ended.stderr
