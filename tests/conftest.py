# SPDX-License-Identifier: Apache-2.0
"""What every test shares: how hard Hypothesis looks, and the check of requirement marks."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tools import pytest_requirements

# A slow machine is no failure, so there is no deadline; `ci` draws the same examples in every run.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))


def pytest_configure(config: pytest.Config) -> None:
    """Add the requirement marks."""
    pytest_requirements.register(config)
