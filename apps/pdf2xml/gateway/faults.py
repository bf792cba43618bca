# SPDX-License-Identifier: Apache-2.0
"""Failures on demand, for tests: the gateway can be made to fail, hang, refuse or cut the connection, and to recover.

Only a gateway that was started with the switch has it, and only for loopback addresses.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
from fastapi import APIRouter, Request, Response

from redrive.web import JsonResponse, Problem, ProblemError, decode_json, read_limited

LOOPBACK = frozenset({"127.0.0.1", "::1"})


class Fault(msgspec.Struct, kw_only=True):
    """What conversions meet from now on."""

    mode: Literal["ok", "status", "hang", "slow"] = "ok"
    """`hang` answers when it is ended by another order; `slow` converts then."""
    status: int = 503
    detail: str = ""
    retry_after: str = ""
    times: int | None = None
    """How many conversions meet it; None for all."""


class Faults:
    """The present fault, and how many conversions were asked for."""

    def __init__(self) -> None:
        self._fault = Fault()
        self._changed = asyncio.Event()
        self.asked: dict[str, int] = {}
        """Conversions asked for, by idempotency key."""

    @property
    def is_well(self) -> bool:
        """Whether the health of the gateway is good."""
        return self._fault.mode in {"ok", "slow"} or self._fault.status < 500 or self._fault.times is not None

    def set(self, fault: Fault) -> None:
        """Meet this from now on; what hangs is released."""
        self._fault = fault
        self._changed.set()
        self._changed = asyncio.Event()

    async def meet(self, key: str) -> None:
        """Let a conversion meet the present fault.

        Raises:
            ProblemError: it fails.
        """
        self.asked[key] = self.asked.get(key, 0) + 1
        fault = self._fault
        if fault.mode == "ok":
            return
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._fault = Fault()
        if fault.mode in {"hang", "slow"}:
            await self._changed.wait()
        if fault.mode in {"hang", "status"}:
            status = fault.status if fault.mode == "status" else 503
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            raise ProblemError(Problem.of_status(status, detail=fault.detail), headers=headers)


def switch(faults: Faults) -> APIRouter:
    """Return the routes by which faults are set and counted."""
    router = APIRouter(prefix="/admin")

    def check(request: Request) -> None:
        if request.client is None or request.client.host not in LOOPBACK:
            raise ProblemError(Problem.of_status(403))

    @router.post("/fault")
    async def set_fault(request: Request) -> Response:
        check(request)
        # A page that a local browser shows can post other types without being asked.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ProblemError(Problem.of_status(415))
        faults.set(decode_json(await read_limited(request, 10_000), Fault))
        return Response(status_code=204)

    @router.get("/asked")
    async def asked(request: Request) -> Response:
        check(request)
        return JsonResponse(faults.asked)

    return router
