# SPDX-License-Identifier: Apache-2.0
"""Measurements: in order, in batches, kept while nothing changed, and made later over samples that are not made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from pyarrow import parquet

from apps.forge.artifacts import Artifacts
from apps.forge.measurements import Measured, Measurement, in_order, measurement
from apps.forge.spec import Forge as Spec
from apps.forge.tests import flows
from apps.forge.tests.conftest import Forge, read_lines
from redrive import ConfigurationError, RedriveError
from redrive.testing import VirtualClock

SPEC = "apps.forge.tests.flows:plain"


def named(name: str, *after: str) -> Measurement:
    return measurement(name=name, after=after)(lambda samples, _: [0 for _ in samples])


def test_each_comes_after_what_it_depends_on() -> None:
    order = [each.name for each in in_order([named("c", "b", "a"), named("a"), named("b", "a")])]

    assert order == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("measurements", "message"),
    [
        ([named("a", "c"), named("b", "a"), named("c", "b")], "is a circle: each comes after the next"),
        ([named("a", "b")], "comes after b, which is no measurement"),
        ([named("a"), named("a")], "is the name of two measurements"),
    ],
)
def test_a_circle_an_unknown_one_and_a_name_given_twice_are_refused_by_name(
    measurements: list[Measurement], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        Spec(name="wrong", stages=flows.plain.stages, measurements=measurements)

    if "circle" in message:
        assert refused.value.got.count("->") == 3
        assert {"a", "b", "c"} <= set(refused.value.got)


def test_the_values_of_a_run_are_files_and_a_picture(forge: Forge, clock: VirtualClock) -> None:
    code, said = forge("run", SPEC, "--out", "out")

    assert code == 0
    assert "measured twice (version 1): 5 made, 0 kept" in said
    expected = [{"sample": n, "size": n**2, "twice": 2.0 * n**2} for n in range(5)]
    assert read_lines("out/measurements.jsonl") == expected
    assert parquet.read_table("out/measurements.parquet").to_pylist() == expected
    drawn = " ".join(ElementTree.parse("out/measurements.svg").getroot().itertext())
    assert "size: 5 values" in drawn


def test_what_did_not_change_is_not_measured_again_and_no_sample_is_made(
    forge: Forge, clock: VirtualClock
) -> None:
    forge("run", SPEC, "--out", "out")
    flows.STATE.calls.clear()
    flows.STATE.measured.clear()

    code, said = forge("measure", "out")

    assert code == 0
    assert "measured size (version 1): 0 made, 5 kept" in said
    assert not flows.STATE.measured
    assert not flows.STATE.calls


def test_a_new_measurement_is_made_alone_over_the_samples_that_are_there(
    forge: Forge, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge("run", SPEC, "--out", "out")
    old = msgspec.json.decode(Path("out/manifest.json").read_bytes())
    flows.STATE.calls.clear()
    flows.STATE.measured.clear()

    def third(samples: Sequence[Measured], _: Artifacts) -> list[str]:
        return [f"{each.values['twice']:.0f}" for each in samples]

    more = [*flows.plain.measurements, measurement(after=["twice"])(third)]
    monkeypatch.setattr(flows, "plain", replace(flows.plain, measurements=more))
    code, said = forge("measure", "out")

    assert code == 0
    assert "measured third (version 1): 5 made, 0 kept" in said
    assert not flows.STATE.measured
    assert not flows.STATE.calls
    assert [each["third"] for each in read_lines("out/measurements.jsonl")] == ["0", "2", "8", "18", "32"]
    new = msgspec.json.decode(Path("out/manifest.json").read_bytes())
    assert (set(new["measurements"]) - set(old["measurements"])) == {"third"}
    assert new["hash"] != old["hash"]


def test_a_new_version_is_measured_and_with_it_what_depends_on_its_values(
    forge: Forge, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge("run", SPEC, "--out", "out")
    flows.STATE.measured.clear()

    def larger(samples: Sequence[Measured], _: Artifacts) -> list[int]:
        # The first value stays, so what depends on it is kept.
        return [each.output.n + (each.sample > 0) for each in samples]

    newer = measurement(name="size", version="2")(larger)
    monkeypatch.setattr(flows, "plain", replace(flows.plain, measurements=[newer, flows.twice]))
    _, said = forge("measure", "out")

    assert "measured size (version 2): 5 made, 0 kept" in said
    assert "measured twice (version 1): 4 made, 1 kept" in said


def test_samples_are_measured_in_batches(
    forge: Forge, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def counted(samples: Sequence[Measured], _: Artifacts) -> list[int]:
        sizes.append(len(samples))
        return [0 for _ in samples]

    many = replace(
        flows.plain, source=lambda: ({"n": n} for n in range(600)), measurements=[measurement()(counted)]
    )
    monkeypatch.setattr(flows, "plain", many)
    forge("run", SPEC, "--out", "out")

    assert sizes == [256, 256, 88]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda samples: [0], "of samples 0 to 4 returned 1 values for 5 samples"),
        (lambda samples: 1 / 0, "of samples 0 to 4 failed: ZeroDivisionError"),
    ],
)
def test_a_measurement_that_fails_is_named_and_the_samples_stay(
    made: Any, message: str, forge: Forge, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = measurement(name="wrong", after=["size"])(lambda samples, _: made(samples))
    sound = flows.plain
    monkeypatch.setattr(flows, "plain", replace(sound, measurements=[flows.size, wrong]))
    code, said = forge("run", SPEC, "--out", "out")
    assert code == 2
    assert message in said
    assert "run forge measure" in said
    assert len(read_lines("out/samples.jsonl")) == 5

    monkeypatch.setattr(flows, "plain", sound)
    _, again = forge("measure", "out")

    assert "measured size (version 1): 0 made, 5 kept" in again


def test_artefacts_are_files_named_by_their_content(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    first, again, other = (artifacts.keep(content) for content in (b"one", b"one", b"two"))

    assert first == again != other
    assert artifacts.read(first) == b"one"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.parent.name + path.name for path in files) == sorted([first, other])
    (tmp_path / first[:2] / first[2:]).write_bytes(b"changed")
    with pytest.raises(RedriveError, match="was changed"):
        artifacts.read(first)
    with pytest.raises(RedriveError, match="is not in"):
        artifacts.read("0" * 64)
