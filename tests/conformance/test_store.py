# SPDX-License-Identifier: Apache-2.0
"""The suite that every store must pass, on ours."""

from __future__ import annotations

from redrive.testing.conformance import StoreConformance


class TestStore(StoreConformance):
    """Each test runs on every store of the fixture."""
