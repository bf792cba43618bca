# SPDX-License-Identifier: Apache-2.0
"""The state of each component, asked when somebody wants to know: store, object store, broker, workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from apps.fetchbox.settings import Settings
from apps.fetchbox.transfer.storage import Buckets
from redrive import Redrive, classify
from redrive.engine.runtime import CURRENT
from redrive.sinks.nats import connected
from redrive.store.statements import upkeep as upkeep_sql
from redrive.store.statements import workers as worker_sql

SECONDS: Final = 3.0
ALL: Final = ("store", "storage", "broker", "workers")


class NoWorkerError(Exception):
    """No live worker serves the pipeline."""


class Health:
    """Asks the components."""

    def __init__(self, rd: Redrive, buckets: Buckets, settings: Settings) -> None:
        self._rd = rd
        self._buckets = buckets
        self._settings = settings

    async def components(self, only: Collection[str] = ALL) -> dict[str, dict[str, str]]:
        """Return the state of each component: ok, failed with its code, or off if it is not configured."""
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            "store": self._store,
            "storage": self._buckets.of().ping,
            "broker": self._broker,
            "workers": self._workers,
        }
        names = [name for name in asked if name in only]
        found = await asyncio.gather(*(_state(asked[name]) for name in names))
        states = dict(zip(names, found, strict=True))
        if "broker" in states and not self._settings.nats_url:
            states["broker"] = {"status": "off"}
        return states

    async def _store(self) -> None:
        await asyncio.to_thread(self._rd.store.query, upkeep_sql.schema_version())

    async def _broker(self) -> None:
        if self._settings.nats_url:
            client = await connected(self._settings.nats_url)
            await client.close()

    async def _workers(self) -> None:
        rows = await asyncio.to_thread(self._rd.store.query, worker_sql.workers())
        now = CURRENT.get().clock.wall()
        if not any(row.expires_at > now for row in rows):
            raise NoWorkerError


async def _state(ask: Callable[[], Awaitable[object]]) -> dict[str, str]:
    try:
        async with asyncio.timeout(SECONDS):
            await ask()
    except NoWorkerError:
        return {"status": "failed", "code": "NO_WORKER"}
    except Exception as error:  # noqa: BLE001 - whatever it is, the component does not work.
        return {"status": "failed", "code": classify(error).code}
    return {"status": "ok"}
