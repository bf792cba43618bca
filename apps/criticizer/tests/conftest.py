# SPDX-License-Identifier: Apache-2.0
"""What the tests share: servers, settings that point to them, and a repository with a bad change."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from apps.criticizer.settings import Settings
from apps.criticizer.tests.scenes import KEY, make_repository
from apps.criticizer.tests.servers import Mailbox, Upstream
from tools import pytest_requirements


def pytest_configure(config: pytest.Config) -> None:
    """Add the requirement marks."""
    pytest_requirements.register(config)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of this machine reaches a test."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def upstream() -> Generator[Upstream]:
    with Upstream() as server:
        yield server


@pytest.fixture
def mailbox() -> Generator[Mailbox]:
    with Mailbox() as server:
        yield server


@pytest.fixture
def settings(upstream: Upstream, mailbox: Mailbox) -> Settings:
    """Settings with a key: the model reviews."""
    return Settings(
        llm_key=KEY,
        llm_url=f"{upstream.url}/v1",
        webhook_url=f"{upstream.url}/hook",
        smtp_url=f"smtp://127.0.0.1:{mailbox.port}",
        hosts=frozenset({upstream.address}),
        timeout_seconds=5.0,
    )


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")
