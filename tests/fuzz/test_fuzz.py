# SPDX-License-Identifier: Apache-2.0
"""Inputs made of seeds and of anything: some for every run of the tests, many for `make fuzz`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import EXAMPLES, TARGETS, exported_line


def inputs(seeds: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Seeds that are cut, joined and changed in a few places, and whatever else."""
    noise = st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace"))
    if not seeds:
        return noise
    seed = st.sampled_from(seeds)
    cut = st.tuples(seed, st.integers(0, 4_000), noise, st.integers(0, 50)).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + parts[3] :]
    )
    return noise | seed | cut | st.lists(cut, max_size=3).map(b"".join)


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_in_is_answered_or_refused(name: str) -> None:
    target, seeds = TARGETS[name]
    if name == "import":
        seeds = (exported_line(),)

    @settings(max_examples=EXAMPLES)
    @given(inputs(seeds))
    def fuzzed(given_: bytes) -> None:
        target(given_)

    fuzzed()
