# SPDX-License-Identifier: Apache-2.0
"""What the tests share: an installation of three processes, visitors, and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, sync_playwright

from apps.pdf2xml.tests.site import Site, Visitor
from tools import pytest_requirements

FLAGS = (
    "--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking --disable-component-update"
    " --disable-default-apps --disable-sync --no-first-run --disable-extensions --metrics-recording-only"
).split()


def pytest_configure(config: pytest.Config) -> None:
    """Add the requirement marks."""
    pytest_requirements.register(config)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, installation: dict[str, str]) -> Generator[Site]:
    site = Site(tmp_path_factory.mktemp("pdf2xml") / "site", installation)
    yield site
    site.end()


@pytest.fixture
def site(running: Site, installation: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Site:
    """The installation, well and with its usual worker."""
    for name, value in installation.items():
        # What runs in this process works on the same jobs.
        monkeypatch.setenv(name, value)
    running.reset()
    running.worker()
    return running


@pytest.fixture
def visitor(site: Site) -> Generator[Visitor]:
    with site.visitor() as somebody:
        yield somebody


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """A browser for the tests of one module. While it is open an event loop runs on this thread, and nobody else can run one."""
    found = [
        path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))
    ]
    assert found, "there is no Chromium: make setup-browser installs it"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found[0], args=FLAGS)
        yield chromium
        chromium.close()
