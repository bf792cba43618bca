# SPDX-License-Identifier: Apache-2.0
"""Write pages to a SQLite file with a Markdown page for each mail, or to Notion.

A mail has one page, identified by its e-mail id; writing it again updates that page, so the stage is idempotent.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol, cast

from msgspec import Struct

from apps.collabiq.extract import Found
from apps.collabiq.retry_config import NOTION_RETRY_CONFIG
from apps.collabiq.settings import Settings
from redrive.sinks import safe_name, write_file

TEXT_MAX: Final = 2_000
"""Characters of a text in a Notion property (developers.notion.com/reference/request-limits)."""
EMAIL_ID: Final = "Email ID"
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS pages (
    email_id TEXT PRIMARY KEY, title TEXT NOT NULL, sender TEXT NOT NULL, sent_at TEXT,
    kind TEXT NOT NULL, people TEXT NOT NULL, companies TEXT NOT NULL, dates TEXT NOT NULL
) STRICT
"""


class Page(Struct, frozen=True, kw_only=True):
    """The page about one mail."""

    email_id: str
    title: str
    sender: str
    sent_at: datetime | None
    found: Found


class Pages(Protocol):
    """A store of pages."""

    def write(self, page: Page) -> str:
        """Write a page, replacing the one with the same e-mail id, and return its location."""
        ...

    def close(self) -> None:
        """Close the connection, if there is one."""
        ...


class LocalPages:
    """A SQLite file, `pages.db`, and a folder of Markdown pages, `pages/`."""

    def __init__(self, folder: Path) -> None:
        self._database = folder / "pages.db"
        self._folder = folder / "pages"
        # Before SQLite makes it, readable by everybody.
        with suppress(FileExistsError):
            os.close(os.open(self._database, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        self._database.chmod(0o600)
        self._ask(_TABLE)

    def write(self, page: Page) -> str:
        """Write a page; the Markdown first, so that every row has its page."""
        found = page.found
        path = self._folder / f"{safe_name(page.email_id)}.md"
        lists = [
            json.dumps([str(each) for each in some], ensure_ascii=False)
            for some in (found.people, found.companies, found.dates)
        ]
        sent_at = None if page.sent_at is None else page.sent_at.isoformat()
        write_file(path, as_markdown(page).encode())
        row = (page.email_id, page.title, page.sender, sent_at, found.kind, *lists)
        self._ask("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
        return str(path)

    def kept(self) -> list[tuple[str, str, str, str, str]]:
        """Return title, kind, people, companies and dates of every page."""
        return self._ask("SELECT title, kind, people, companies, dates FROM pages ORDER BY dates")

    def close(self) -> None:
        """Do nothing: connections last for one statement."""

    def _ask(self, statement: str, *values: str | None) -> list[tuple[str, str, str, str, str]]:
        with closing(sqlite3.connect(self._database, timeout=30)) as opened, opened:
            return opened.execute(statement, values).fetchall()


def as_markdown(page: Page) -> str:
    """Return a page as Markdown; text from the mail is escaped, never markup."""
    found = page.found
    rows = {
        "E-mail": page.email_id,
        "From": page.sender,
        "Sent": "unknown" if page.sent_at is None else f"{page.sent_at:%Y-%m-%d %H:%M} UTC",
        "Kind": found.kind,
        **_lists(found),
    }
    lines = [f"- {name}: {_plain(value) or 'none found'}" for name, value in rows.items()]
    return "\n".join([f"# {_plain(page.title) or '(no subject)'}", "", *lines, ""])


def _lists(found: Found) -> dict[str, str]:
    lists = {"People": found.people, "Companies": found.companies, "Dates": found.dates}
    return {name: ", ".join(map(str, some)) for name, some in lists.items()}


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#|!~])", r"\\\1", " ".join(text.split()))


class NotionPages:
    """A Notion data source with the properties Name, Email ID, From, Kind, People, Companies, Dates and Sent.

    Before creating a page, it is searched by its e-mail id, so a page created by a worker that died is found. Two workers that
    write the same mail at the same time, one of which has lost its lease, can both search before either creates a page: Notion
    has no unique property that would refuse the second.
    """

    def __init__(self, settings: Settings, token: str) -> None:
        import notion_client

        self._client = notion_client.Client(
            auth=token,
            base_url=settings.notion_url.rstrip("/"),
            timeout_ms=int(NOTION_RETRY_CONFIG.timeout * 1000),
            retry=False,
            # It would log Notion's answers unredacted; the engine logs them redacted.
            logger=logging.getLogger("collabiq.notion"),
            log_level=logging.CRITICAL,
        )
        self._data_source = settings.notion_data_source

    def write(self, page: Page) -> str:
        """Update the page of this mail, or create one; return its id."""
        found = cast(
            "dict[str, list[dict[str, str]]]",
            self._client.data_sources.query(
                self._data_source,
                filter={"property": EMAIL_ID, "rich_text": {"equals": page.email_id}},
                page_size=1,
            ),
        )["results"]
        properties = as_properties(page)
        if found:
            answer = self._client.pages.update(found[0]["id"], properties=properties)
        else:
            parent = {"type": "data_source_id", "data_source_id": self._data_source}
            answer = self._client.pages.create(parent=parent, properties=properties)
        return str(cast("dict[str, object]", answer)["id"])

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def as_properties(page: Page) -> dict[str, object]:
    """Return a page as the properties of a Notion page (developers.notion.com/reference/page-property-values)."""
    found = page.found
    texts = {
        EMAIL_ID: page.email_id,
        "From": page.sender,
        **_lists(found),
    }
    properties: dict[str, object] = {
        "Name": {"title": _rich(page.title or "(no subject)")},
        "Kind": {"select": {"name": found.kind}},
        "Sent": {"date": None if page.sent_at is None else {"start": page.sent_at.isoformat()}},
    }
    return properties | {name: {"rich_text": _rich(text)} for name, text in texts.items()}


def _rich(text: str) -> list[dict[str, object]]:
    return [{"text": {"content": text[:TEXT_MAX]}}] if text else []
