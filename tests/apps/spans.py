# SPDX-License-Identifier: Apache-2.0
"""Spans of other processes: a tracer provider that they find by its name, and that writes each span into a file when it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

PLUGIN = {
    "spans_test-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: spans-test\nVersion: 1\n",
    "spans_test-1.dist-info/entry_points.txt": "[opentelemetry_tracer_provider]\nfile = spans_test:FileProvider\n",
    "spans_test.py": """
import json, os
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class Exporter(SpanExporter):
    def export(self, spans):
        with open(os.environ["SPANS_FILE"], "a") as file:
            for span in spans:
                about, parent = span.get_span_context(), span.parent
                one = {"name": span.name, "trace": f"{about.trace_id:032x}", "id": f"{about.span_id:016x}",
                    "parent": f"{parent.span_id:016x}" if parent else "", "kind": span.kind.name,
                    "url": str(span.attributes.get("url.full") or span.attributes.get("http.url") or "")}
                file.write(json.dumps(one) + "\\n")
        return SpanExportResult.SUCCESS

class FileProvider(TracerProvider):
    def __init__(self):
        super().__init__()
        self.add_span_processor(SimpleSpanProcessor(Exporter()))
""",
}


class SeenSpan(Struct, frozen=True):
    """One span that has ended."""

    name: str
    trace: str
    id: str
    parent: str
    kind: str
    url: str


class SpanFile:
    """The file of spans, and the environment of processes that write to it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "spans.jsonl"
        plugin = folder / "spans-plugin"
        for name, text in PLUGIN.items():
            (plugin / name).parent.mkdir(parents=True, exist_ok=True)
            (plugin / name).write_text(text, encoding="utf-8")
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{plugin}{os.pathsep}{Path.cwd()}",
            "SPANS_FILE": str(self._file),
            "OTEL_PYTHON_TRACER_PROVIDER": "file",
        }

    def __iter__(self) -> Iterator[SeenSpan]:
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        return (SeenSpan(**json.loads(line)) for line in lines)

    def named(self, name: str) -> list[SeenSpan]:
        """Return the spans of this name."""
        return [span for span in self if span.name == name]

    def above(self, span: SeenSpan) -> list[SeenSpan]:
        """Return the spans that one hangs below, the nearest first; they are all of its trace."""
        known = {each.id: each for each in self if each.trace == span.trace}
        found: list[SeenSpan] = []
        while (parent := known.get(span.parent)) is not None:
            found.append(span := parent)
        return found

    def calls(self) -> list[tuple[str, str]]:
        """Return every HTTP call: the name of the span that it hangs below, and the path of its URL; sorted."""
        names = {span.id: span.name for span in self}
        found = [span for span in self if span.kind == "CLIENT"]
        return sorted({(names.get(span.parent, "nothing"), span.url.split("/", 3)[3]) for span in found})
