# SPDX-License-Identifier: Apache-2.0
"""A webhook: an address that receives each change of a dead letter, and of a breaker, as a POST of JSON.

Any response but a 2xx means that the change was not received; it is sent again later, with the same `Idempotency-Key`. Redirects
are not followed: a change is sent to the configured host only. The address, the headers and the secret are never in an error,
because addresses of webhooks are often secrets themselves.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import http.client
import os
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from redrive.core.arguments import seconds
from redrive.errors import ConfigurationError
from redrive.redaction.process import register_secret
from redrive.sinks.base import BreakerChange, Input, Payload, SunkLetter, as_members, check_values

TIMEOUT_SECONDS: Final = 10.0
TIMEOUT_MAX: Final = 25.0
"""A delivery has half a minute in all; the request must end before that."""
SECRET_MIN: Final = 8
KEY_HEADER: Final = "Idempotency-Key"
TIME_HEADER: Final = "Redrive-Timestamp"
SIGNATURE_HEADER: Final = "Redrive-Signature"

_OWN: Final = {
    *(name.lower() for name in (KEY_HEADER, TIME_HEADER, SIGNATURE_HEADER)),
    *"content-length content-type host connection transfer-encoding".split(),
}
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_SECRET_NAME: Final = re.compile(r"(?i)auth|cookie|key|pass|secret|session|signature|token")


class WebhookRefusedError(OSError):
    """A webhook did not accept a change; it is sent again."""

    def __init__(self, *, host: str, problem: str) -> None:
        self.host = host
        self.problem = problem
        super().__init__(f"{host} {problem}")

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(WebhookRefusedError, host=self.host, problem=self.problem), ()


class Webhook:
    """Posts each change of a dead letter, and of a breaker of the pipeline, as JSON to `url`.

    The member `event` names the change; it is `breaker` for one of a breaker. Every request carries `Idempotency-Key`, the same for
    the same change. With a `secret` it also carries `Redrive-Timestamp`, seconds since the epoch, and `Redrive-Signature`:
    `sha256=` and the HMAC-SHA256, in hex, of the timestamp, a full stop and the body. `timeout` is for the whole request. Proxies
    set in the environment are not used.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "webhook",
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: timedelta | float = TIMEOUT_SECONDS,
        payload: Payload = "exclude",
        input: Input = "exclude",  # noqa: A002 - the field of the letter has this name.
    ) -> None:
        check_values(f"Webhook({name})", payload, input)
        self.name = name
        self.payload = payload
        self.input = input
        self._address = _address_of(name, url)
        self._headers = _checked_headers(name, headers or {})
        self._secret = _checked_secret(name, secret)
        self._timeout = seconds(f"Webhook({name}).timeout", timeout, above=True)
        if self._timeout > TIMEOUT_MAX:
            raise ConfigurationError(
                field=f"Webhook({name}).timeout",
                value=timeout,
                rule=f"must be at most {TIMEOUT_MAX:g} seconds",
                fix=f"{TIMEOUT_SECONDS:g} is the default.",
            )

    def __repr__(self) -> str:
        return f"Webhook({self._host!r}, name={self.name!r}, payload={self.payload!r})"

    @property
    def _host(self) -> str:
        return f"{self._address.scheme}://{self._address.netloc}/..."

    def deliver(self, letter: SunkLetter) -> None:
        """Post one change of a letter.

        Raises:
            WebhookRefusedError: The response was not a 2xx, or there was none.
        """
        self._send(letter, as_members(letter))

    def deliver_breaker(self, change: BreakerChange) -> None:
        """Post one change of a breaker.

        Raises:
            WebhookRefusedError: The response was not a 2xx, or there was none.
        """
        self._send(change, {"event": "breaker", **msgspec.structs.asdict(change)})

    def _send(self, change: SunkLetter | BreakerChange, members: dict[str, object]) -> None:
        body = msgspec.json.encode(members)
        try:
            status = self._posted(body, {**self._headers, **self._own_headers(change, body)})
        except (OSError, http.client.HTTPException) as error:
            # Without its text and its cause: either may show the address or a header.
            raise WebhookRefusedError(
                host=self._host, problem=f"did not answer ({_kind_of(error)})"
            ) from None
        if not 200 <= status < 300:
            why = " (redirects are not followed; give the address it leads to)" if 300 <= status < 400 else ""
            raise WebhookRefusedError(host=self._host, problem=f"answered {status}{why}")

    def _own_headers(self, change: SunkLetter | BreakerChange, body: bytes) -> dict[str, str]:
        own = {"Content-Type": "application/json", KEY_HEADER: change.delivery, "Connection": "close"}
        if self._secret is not None:
            now = str(int(change.sent_at.timestamp()))
            signed = hmac.new(self._secret.encode(), f"{now}.".encode() + body, hashlib.sha256)
            own |= {TIME_HEADER: now, SIGNATURE_HEADER: f"sha256={signed.hexdigest()}"}
        return own

    def _posted(self, body: bytes, headers: dict[str, str]) -> int:
        """Send a request and return the status of the response, within the timeout."""
        address = self._address
        path = (address.path or "/") + (f"?{address.query}" if address.query else "")
        connection = self._connection()
        is_late = threading.Event()

        def cut_off() -> None:
            is_late.set()
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

        # The timeout of a socket is for one read; a server that sends a byte now and then would never reach it.
        limit = threading.Timer(self._timeout, cut_off)
        limit.daemon = True
        limit.start()
        try:
            connection.request("POST", path, body=body, headers=headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            if is_late.is_set():
                raise TimeoutError from None
            raise
        finally:
            limit.cancel()
            connection.close()
        if is_late.is_set():
            # A response that was cut off among its headers looks like a complete one with fewer of them.
            raise TimeoutError
        return status

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)


def _kind_of(error: Exception) -> str:
    """Return the kind of an error, in the words of the system."""
    name = type(error).__name__
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno is not None:
        return f"{name}: {os.strerror(error.errno)}" if error.errno > 0 else name
    return name


def _address_of(name: str, url: str) -> SplitResult:
    """Parse an address, or refuse it without showing it."""
    try:
        address = urlsplit(url)
        is_good = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
        is_good = is_good and url.isascii() and url.isprintable() and " " not in url
    except (ValueError, AttributeError, TypeError):
        is_good, address = False, urlsplit("")
    if not is_good or address.username is not None or address.password is not None:
        raise ConfigurationError(
            field=f"Webhook({name}).url",
            value="<not shown>",
            rule="must be an http or https address in ASCII, without a user in it",
            fix='"https://example.org/dead-letters"; credentials go into headers=.',
        )
    return address


def _checked_headers(name: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers, and register those that look secret so that they are hidden everywhere."""
    for header, value in headers.items():
        is_good = isinstance(header, str) and isinstance(value, str)
        is_good = is_good and bool(_HEADER_NAME.fullmatch(header) and _HEADER_VALUE.fullmatch(value))
        if not is_good or header.lower() in _OWN:
            raise ConfigurationError(
                field=f"Webhook({name}).headers",
                value=header,
                rule="must contain names and values of HTTP headers, none that redrive sets itself",
                fix='{"Authorization": "Bearer ..."}, for example.',
            )
        if _SECRET_NAME.search(header):
            # "Bearer abc": the second word alone is the secret, too.
            for part in {value, value.rpartition(" ")[2]}:
                if len(part) >= SECRET_MIN:
                    register_secret(part)
    return dict(headers)


def _checked_secret(name: str, secret: str | None) -> str | None:
    if secret is None:
        return None
    if not isinstance(secret, str) or len(secret) < SECRET_MIN:
        raise ConfigurationError(
            field=f"Webhook({name}).secret",
            value="<not shown>",
            rule=f"must be a text of at least {SECRET_MIN} characters",
            fix="Make one with secrets.token_urlsafe(32).",
        )
    register_secret(secret)
    return secret
