# SPDX-License-Identifier: Apache-2.0
"""A mailbox, a database in a temporary folder, and the check of requirement marks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from apps.collabiq.files import STACKS
from apps.collabiq.settings import Settings
from apps.collabiq.tests.services import Gemini, Gmail, Infisical, Notion
from apps.collabiq.tests.wire import Service
from redrive import Redrive, connect
from tools import pytest_requirements


def pytest_configure(config: pytest.Config) -> None:
    """Add the requirement marks."""
    pytest_requirements.register(config)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings for a folder of its own, with keys in an .env file for whoever asks for them."""
    for name in ("GMAIL_TOKEN", "GEMINI_API_KEY", "NOTION_TOKEN", "IMAP_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    keys = "GMAIL_TOKEN=ya29.made-up\nGEMINI_API_KEY='AIza-made-up'\nexport NOTION_TOKEN=ntn_made_up\nIMAP_PASSWORD=sesame-street\n"
    (tmp_path / ".env").write_text(keys)
    made = Settings(
        folder=str(tmp_path / "data"),
        mailbox=str(tmp_path / "mail.mbox"),
        env_file=str(tmp_path / ".env"),
        notion_data_source="11112222-3333-4444-5555-666677778888",
    )
    made.root.mkdir()
    return made


@pytest.fixture
def rd(settings: Settings) -> Generator[Redrive]:
    # Jobs of every database have the same ids.
    STACKS.clear()
    with connect(settings.database) as made:
        yield made


@pytest.fixture
def serve() -> Generator[Callable[[type[Service]], Service]]:
    """Start services; they end with the test."""
    started: list[Service] = []

    def start(kind: type[Service]) -> Service:
        started.append(kind())
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def gemini(serve: Callable[[type[Service]], Service]) -> Service:
    return serve(Gemini)


@pytest.fixture
def notion(serve: Callable[[type[Service]], Service]) -> Service:
    return serve(Notion)


@pytest.fixture
def gmail(serve: Callable[[type[Service]], Service]) -> Service:
    return serve(Gmail)


@pytest.fixture
def infisical(serve: Callable[[type[Service]], Service]) -> Service:
    return serve(Infisical)


@pytest.fixture
def remote(settings: Settings, gmail: Gmail, gemini: Gemini, notion: Notion) -> Settings:
    """Settings that use every service."""
    return replace(
        settings,
        source="gmail",
        extractor="gemini",
        sink="notion",
        gmail_url=gmail.url,
        gemini_url=gemini.url,
        notion_url=notion.url,
    )
