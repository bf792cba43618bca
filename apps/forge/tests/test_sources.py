# SPDX-License-Identifier: Apache-2.0
"""Samples from files and generators, and the outputs they become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec import Struct
from pyarrow import parquet

from apps.forge.folder import RunFolder
from apps.forge.outputs import read_lines as output_lines
from apps.forge.outputs import whole_lines
from apps.forge.sources import SampleFile
from apps.forge.tables import column_type, columns_of
from apps.forge.tests.conftest import Forge, read_lines
from redrive.testing import VirtualClock

SPEC = "apps.forge.tests.flows:plain"


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", None])
def test_every_source_gives_the_same_samples(
    name: str | None, forge: Forge, tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(b'{"n": %d}\n' % number for number in range(5)))
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfn\n" + b"".join(b"%d\n" % number for number in range(5)))
    parquet.write_table(pa.table({"n": list(range(5))}), tmp_path / "a.parquet")

    code, said = forge("run", SPEC, *([] if name is None else ["--input", name]), "--out", "out")

    assert code == 0, said
    assert [each["output"] for each in read_lines("out/samples.jsonl")] == [
        {"n": number**2} for number in range(5)
    ]
    rows = parquet.read_table("out/samples.parquet").to_pylist()
    assert [(each["sample"], each["status"], each["n"]) for each in rows] == [
        (number, "complete", number**2) for number in range(5)
    ]


def test_a_csv_field_that_is_no_number_is_a_sample_that_fails_alone(
    forge: Forge, tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "a.csv").write_text("n\n1\nmany\n3\n", encoding="utf-8")

    code, _ = forge("run", SPEC, "--input", "a.csv", "--out", "out")

    assert code == 1
    assert [each["status"] for each in read_lines("out/samples.jsonl")] == ["complete", "failed", "complete"]


def test_a_csv_file_for_a_stage_without_a_type_has_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('n,text\n1,"two\nlines"\n\n2,x\n', encoding="utf-8")

    assert list(SampleFile(path)) == [{"n": "1", "text": "two\nlines"}, {"n": "2", "text": "x"}]
    assert SampleFile(path).check().samples == 2


class Inner(Struct):
    a: int
    b: float | None = None


class Wide(Struct, rename="camel"):
    plain_text: str
    many: list[int]
    maybe: bool | None
    inner: Inner
    either: int | str
    anything: Any
    table: dict[str, int]


def test_columns_come_from_types_and_the_rest_is_json() -> None:
    assert columns_of(Wide) == {
        "plainText": pa.string(),
        "many": pa.list_(pa.int64()),
        "maybe": pa.bool_(),
        "inner": pa.struct([("a", pa.int64()), ("b", pa.float64())]),
        "either": None,
        "anything": None,
        "table": None,
    }
    assert columns_of(dict[str, int]) == {}
    assert column_type(list[dict[str, int]]) is None


def test_outputs_of_every_form_can_be_read_from_parquet(
    forge: Forge, tmp_path: Path, clock: VirtualClock
) -> None:
    """A field with the name of a column gets another name, and an output without a type is one column."""
    (tmp_path / "spec.py").write_text(
        """
from msgspec import Struct
from apps.forge.policy import stage
from apps.forge.spec import Forge

class Out(Struct):
    status: str
    extra: dict[str, int]

@stage()
def typed(sample: dict[str, int]) -> Out:
    return Out("mine", sample)

@stage()
def untyped(sample: dict[str, int]) -> list[int]:
    return list(sample.values())

source = lambda: [{"n": 1}, {"n": 2}]
one = Forge(name="one", stages=[typed], source=source)
two = Forge(name="two", stages=[untyped], source=source)
""",
        encoding="utf-8",
    )

    assert forge("run", "spec.py:one", "--out", "one")[0] == 0
    assert forge("run", "spec.py:two", "--out", "two")[0] == 0

    one, two = (parquet.read_table(f"{name}/samples.parquet").to_pylist() for name in ("one", "two"))
    assert [(each["status"], each["output_status"], msgspec.json.decode(each["extra"])) for each in one] == [
        ("complete", "mine", {"n": 1}),
        ("complete", "mine", {"n": 2}),
    ]
    assert [msgspec.json.decode(each["output"]) for each in two] == [[1], [2]]


def test_a_stage_finishes_a_sample_early_with_success(
    forge: Forge, tmp_path: Path, clock: VirtualClock
) -> None:
    (tmp_path / "spec.py").write_text(
        """
from apps.forge.policy import stage
from apps.forge.spec import Forge
from redrive import Finish

@stage()
def known(sample: int) -> int:
    if sample == 2:
        raise Finish("known")
    return sample

@stage()
def slow(sample: int) -> str:
    return f"made of {sample}"

spec = Forge(name="early", stages=[known, slow], source=lambda: range(4))
""",
        encoding="utf-8",
    )

    code, said = forge("run", "spec.py:spec", "--out", "out")

    assert code == 0, said
    outputs = [each["output"] for each in read_lines("out/samples.jsonl")]
    assert outputs == ["made of 0", "made of 1", "known", "made of 3"]


def test_a_line_that_was_not_written_to_its_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    whole = b'{"sample":0,"job":1,"status":"complete","output":{"n":1}}\n'
    path.write_bytes(whole + b'{"sample":1,"jo')

    assert [line.sample for line in output_lines(path)] == [0]
    assert whole_lines(path) == 1
    assert path.read_bytes() == whole
    assert list(output_lines(RunFolder(tmp_path / "nowhere").samples)) == []
