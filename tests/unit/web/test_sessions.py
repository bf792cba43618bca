# SPDX-License-Identifier: Apache-2.0
"""The session cookie: who gets an owner id, how long it lasts, and what is not believed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from fastapi import Request, Response

from redrive.errors import ConfigurationError
from redrive.testing import VirtualClock
from redrive.web import Session, Sessions, installation_secret

SECRET = b"s" * 32


def open_session(sessions: Sessions, cookie: str | None = None) -> Session:
    headers = [] if cookie is None else [(b"cookie", f"{sessions.cookie}={cookie}".encode())]
    return sessions.open(Request({"type": "http", "method": "GET", "headers": headers}))


def test_a_visitor_without_a_cookie_gets_an_owner_id_and_is_known_by_it_later() -> None:
    sessions = Sessions(SECRET)

    first = open_session(sessions)
    again = open_session(sessions, first.cookie)

    assert again == Session(first.owner, None, sessions)
    assert open_session(sessions).owner != first.owner


@pytest.mark.parametrize("is_secure", [False, True])
def test_the_cookie_is_hidden_from_scripts_and_other_sites(is_secure: bool) -> None:
    response = Response()
    open_session(Sessions(SECRET, is_secure=is_secure, max_age=60)).attach(response)

    cookie = SimpleCookie(response.headers["set-cookie"])["session"]
    assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "lax", "60")
    assert bool(cookie["secure"]) == is_secure


def test_a_known_visitor_needs_no_new_cookie() -> None:
    sessions = Sessions(SECRET)
    response = Response()

    open_session(sessions, open_session(sessions).cookie).attach(response)

    assert "set-cookie" not in response.headers


def changed(cookie: str, at: int) -> str:
    return cookie[:at] + ("0" if cookie[at] != "0" else "1") + cookie[at + 1 :]


def test_a_cookie_that_is_changed_or_of_another_installation_is_not_believed() -> None:
    sessions = Sessions(SECRET)
    first = open_session(sessions)
    cookie = first.cookie or ""
    others = [
        Sessions(b"t" * 32),
        Sessions(SECRET, cookie="other"),
    ]

    assert all(open_session(other, cookie).owner != first.owner for other in others)
    for wrong in [*(changed(cookie, at) for at in (0, 35, -1)), "", "a.b.c", f"{cookie}x", cookie.upper()]:
        assert open_session(sessions, wrong).owner != first.owner


def test_a_cookie_is_renewed_after_half_of_its_time_and_ends_after_all_of_it(clock: VirtualClock) -> None:
    sessions = Sessions(SECRET, max_age=100, clock=clock)
    first = open_session(sessions)

    clock.advance(60)
    renewed = open_session(sessions, first.cookie)
    clock.advance(60)

    assert renewed.owner == first.owner
    assert renewed.cookie not in {None, first.cookie}
    assert open_session(sessions, renewed.cookie).owner == first.owner
    assert open_session(sessions, first.cookie).owner != first.owner


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 32"):
        Sessions(b"short")


def test_an_installation_has_one_secret_that_only_its_owner_may_read(tmp_path: Path) -> None:
    path = tmp_path / "data" / "secret"

    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(lambda _: installation_secret(path), range(8)))

    assert len(secrets) == 1
    assert len(secrets.pop()) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]
