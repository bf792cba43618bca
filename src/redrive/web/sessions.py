# SPDX-License-Identifier: Apache-2.0
"""Who a browser is: a random owner id in a signed cookie. No passwords, no server-side state.

The signature is an HMAC-SHA256 with a secret of the installation, over the name of the cookie, the owner and the time of
issue. A cookie that is changed, too old or of another installation counts as none, and its bearer gets a new owner id.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import Request, Response

from redrive.engine.clock import SYSTEM_CLOCK, Clock, fresh_secret
from redrive.errors import ConfigurationError

SECRET_MIN: Final = 32
"""The fewest bytes of a secret."""
DAY: Final = 86_400.0
_COOKIE: Final = re.compile(r"([0-9a-f]{32})\.([0-9]{1,12})\.([0-9a-f]{64})")


def installation_secret(path: Path) -> bytes:
    """Return the secret in this file; create it, readable by its owner only, if there is none.

    Raises OSError if the file cannot be read or written. A secret that is too short is refused by `Sessions`.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{fresh_secret().hex()[:12]}")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(fresh_secret().hex().encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link never replaces the secret that another process has just created.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_bytes().strip()


@dataclass(frozen=True, slots=True)
class Session:
    """The owner id of a request, and the cookie that its response must set, if any."""

    owner: str
    cookie: str | None
    settings: Sessions

    def attach(self, response: Response) -> None:
        """Set the cookie if it is new, or has used up half of its time."""
        if self.cookie is not None:
            response.set_cookie(
                self.settings.cookie,
                self.cookie,
                max_age=int(self.settings.max_age),
                httponly=True,
                samesite="lax",
                secure=self.settings.is_secure,
            )


class Sessions:
    """Signs and verifies session cookies."""

    def __init__(
        self,
        secret: bytes,
        *,
        cookie: str = "session",
        max_age: float = 90 * DAY,
        is_secure: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if len(secret) < SECRET_MIN:
            raise ConfigurationError(
                field="secret",
                value=f"{len(secret)} bytes",
                rule=f"must have at least {SECRET_MIN} bytes",
                fix="Use installation_secret(path).",
            )
        self.cookie = cookie
        self.max_age = max_age
        self.is_secure = is_secure
        self._secret = secret
        self._clock = clock

    def open(self, request: Request) -> Session:
        """Return the session of this request: the one of its cookie, else a new one."""
        now = self._clock.wall()
        found = _COOKIE.fullmatch(request.cookies.get(self.cookie, ""))
        if found and hmac.compare_digest(found[3], self._signature(found[1], found[2])):
            age = now - float(found[2])
            if age <= self.max_age:
                return Session(found[1], self._issue(found[1], now) if age > self.max_age / 2 else None, self)
        owner = fresh_secret().hex()[:32]
        return Session(owner, self._issue(owner, now), self)

    def _issue(self, owner: str, now: float) -> str:
        issued = str(int(now))
        return f"{owner}.{issued}.{self._signature(owner, issued)}"

    def _signature(self, owner: str, issued: str) -> str:
        return hmac.new(
            self._secret, f"{self.cookie}\n{owner}\n{issued}".encode(), hashlib.sha256
        ).hexdigest()
