# SPDX-License-Identifier: Apache-2.0
"""Connections that tests use one after another leave nothing behind on their server."""

from __future__ import annotations

from tests.databases import Schemas
from tests.kept_connections import KeptConnection


def test_one_that_is_kept_listens_no_more(schemas: Schemas) -> None:
    """Nobody reads from it: a server that cannot send what it has heard stops whoever drops a database."""
    home = f"{schemas.server}&application_name=kept_connections"
    with KeptConnection.connect(home, autocommit=True, cursor_factory=None) as connection:
        connection.execute("LISTEN news")

    (kept,) = KeptConnection.kept[home]
    heard = kept.exec_(b"SELECT * FROM pg_listening_channels()")

    assert heard.ntuples == 0
