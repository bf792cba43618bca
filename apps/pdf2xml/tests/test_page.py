# SPDX-License-Identifier: Apache-2.0
"""The queue page in a real browser: files go in, rows move by themselves, and nothing technical is shown."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Locator, Page, expect

from apps.pdf2xml.codes import LINES, PAUSED
from apps.pdf2xml.tests.pdfs import pdf
from apps.pdf2xml.tests.site import PATIENCE, Site, until

MS = PATIENCE * 1000


@pytest.fixture
def page(site: Site, browser: Browser) -> Generator[Page]:
    """The page of a new visitor; whatever the browser complains about fails the test."""
    context = browser.new_context(base_url=site.api.url, accept_downloads=True)
    context.set_default_timeout(MS)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on(
        "console", lambda line: complaints.append(line.text) if "Content Security" in line.text else None
    )
    opened.goto("/")
    yield opened
    context.close()
    assert complaints == []


def payload(name: str, data: bytes) -> FilePayload:
    return FilePayload(name=name, mimeType="application/pdf", buffer=data)


def choose(page: Page, *files: tuple[str, bytes]) -> None:
    page.set_input_files("#file", [payload(name, data) for name, data in files])
    page.get_by_role("button", name="Upload").click()


def row(page: Page, name: str) -> Locator:
    return page.locator("li.job").filter(has_text=name)


def test_files_go_in_move_by_themselves_and_come_out_as_xml(site: Site, page: Page) -> None:
    expect(page.locator("#empty")).to_be_visible()
    site.fault("slow")

    choose(page, ("one.pdf", pdf("First.")), ("two.pdf", pdf("Second.")))
    expect(row(page, "one.pdf").locator(".status")).to_have_text("processing", timeout=MS)
    site.fault("ok")
    for name in ("one.pdf", "two.pdf"):
        expect(row(page, name).locator(".status")).to_have_text("complete", timeout=MS)

    with page.expect_download() as caught:
        row(page, "two.pdf").get_by_role("link", name="Download").click()
    assert caught.value.suggested_filename == "two.xml"
    assert "Second." in Path(caught.value.path()).read_text(encoding="utf-8")
    expect(page.locator("#empty")).to_be_hidden()


def test_files_can_be_dropped_on_the_page(page: Page) -> None:
    transfer = page.evaluate_handle(
        """bytes => { const t = new DataTransfer();
        t.items.add(new File([new Uint8Array(bytes)], "dropped.pdf", {type: "application/pdf"})); return t; }""",
        list(pdf("Dropped.")),
    )
    page.dispatch_event("#upload", "dragenter", {"dataTransfer": transfer})
    expect(page.locator("#upload")).to_have_class("drop is-over")
    page.dispatch_event("#upload", "drop", {"dataTransfer": transfer})

    expect(row(page, "dropped.pdf").locator(".status")).to_have_text("complete", timeout=MS)


@pytest.mark.req("PX-6.2", "PX-1.2", "PX-11.8")
def test_a_failed_row_shows_its_line_and_a_retry_link_that_works(site: Site, page: Page) -> None:
    site.fault("status", status=406, detail="Failed in /srv/gateway/secret.py line 7")
    choose(page, ("bad.pdf", pdf()))
    failed = row(page, "bad.pdf")
    expect(failed.locator(".status")).to_have_text("failed", timeout=MS)
    expect(failed.locator(".line")).to_contain_text(LINES["GW_4XX"])
    shown = page.content()
    assert "Traceback" not in shown
    assert str(site.settings.folder) not in shown

    site.fault("ok")
    failed.get_by_role("button", name="Retry").click()
    expect(failed.locator(".status")).to_have_text("complete", timeout=MS)
    expect(failed.get_by_role("button", name="Retry")).to_have_count(0)


@pytest.mark.req("PX-5.1", "PX-11.4")
def test_a_banner_shows_that_the_queue_is_paused_and_goes_when_it_is_not(site: Site, page: Page) -> None:
    site.worker(breaker_min_calls=3, breaker_open_for=0.1, breaker_ramp=0.0)
    site.fault("status", status=502)
    banner = page.locator("#paused")
    expect(banner).to_be_hidden()

    choose(page, *((f"{n}.pdf", pdf()) for n in range(4)))
    expect(banner).to_be_visible(timeout=MS)
    expect(banner).to_have_text(PAUSED)

    site.fault("ok")
    expect(banner).to_be_hidden(timeout=MS)
    expect(page.locator("li.is-complete")).to_have_count(4, timeout=MS)


@pytest.mark.req("PX-11.1", "PX-11.2")
def test_what_cannot_be_accepted_is_explained_in_one_line(page: Page) -> None:
    choose(page, ("photo.pdf", b"GIF89a"))
    expect(page.locator("#notes")).to_contain_text(f"photo.pdf: {LINES['NOT_PDF']}", timeout=MS)
    expect(row(page, "photo.pdf").locator(".status")).to_have_text("failed", timeout=MS)
    expect(row(page, "photo.pdf").get_by_role("button", name="Retry")).to_have_count(0)

    page.evaluate("document.body.dataset.maxBytes = 10")
    choose(page, ("large.pdf", pdf()))
    expect(page.locator("#notes")).to_contain_text(f"large.pdf: {LINES['TOO_LARGE']}", timeout=MS)


def test_everything_can_be_done_with_the_keyboard_and_without_the_script(
    site: Site, browser: Browser
) -> None:
    context = browser.new_context(base_url=site.api.url, java_script_enabled=False)
    context.set_default_timeout(MS)
    page = context.new_page()
    page.goto("/")
    site.fault("status", status=400)
    page.set_input_files("#file", payload("plain.pdf", pdf()))
    page.locator("#file").focus()
    page.keyboard.press("Tab")
    with page.expect_navigation():
        page.keyboard.press("Enter")

    def is_shown(text: str) -> bool:
        page.reload()
        return page.locator("li.job .status").filter(has_text=text).count() == 1

    until(lambda: is_shown("failed"))
    site.fault("ok")
    page.get_by_role("button", name="Retry").focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    until(lambda: is_shown("complete"))
    context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(site: Site, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    choose(page, ("a-very-long-name-without-any-blanks-" * 3 + ".pdf", pdf()))
    expect(page.locator("li.is-complete")).to_have_count(1, timeout=MS)

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('button, select, .act a')].map(e => e.getBoundingClientRect().height))"
    )
    assert smallest >= 40


def test_the_page_loads_nothing_from_elsewhere(site: Site, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    expect(page.locator("h1")).to_have_text("PDF to XML")

    assert asked
    assert [url for url in asked if not url.startswith((site.api.url, "data:"))] == []
