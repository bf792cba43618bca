# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests that drive real client libraries against a server of our own.

Nothing leaves the machine: listeners are on 127.0.0.1, names under `.invalid` fail here instead of at a resolver, and proxy settings
of the environment are taken away.
"""

from __future__ import annotations

import datetime
import os
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.wire.server import Behaviour, Certificates, Listener, Refusing, Serve

if TYPE_CHECKING:
    from pathlib import Path

# gRPC's native code writes every broken connection to standard error; it reads this once, when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@pytest.fixture(autouse=True)
def _no_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail names under .invalid (RFC 6761) as a resolver would, and forget proxies and credentials of the environment."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host: object, *args: object, **kwargs: object) -> object:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if name.rstrip(".").endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(
            ("AWS_", "OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_")
        ):
            monkeypatch.delenv(name)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start listeners with a behaviour each; they end with the test."""
    listeners: list[Listener] = []

    def start(behave: Behaviour, *, tls: ssl.SSLContext | None = None) -> Listener:
        listeners.append(Listener(behave, tls=tls))
        return listeners[-1]

    yield start
    for listener in listeners:
        listener.close()


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    """A port where connections are refused."""
    port = Refusing()
    yield port
    port.close()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of two authorities, of which the clients trust one."""
    trusted, stranger = trustme.CA(), trustme.CA()
    folder: Path = tmp_path_factory.mktemp("tls")
    pem = folder / "trusted.pem"
    trusted.cert_pem.write_to_path(pem)
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    good, untrusted = (
        trusted.issue_cert("127.0.0.1", "localhost"),
        stranger.issue_cert("127.0.0.1", "localhost"),
    )
    expired = trusted.issue_cert(
        "127.0.0.1", not_before=long_ago, not_after=long_ago + datetime.timedelta(days=1)
    )
    return Certificates(
        good=_context(good),
        untrusted=_context(untrusted),
        wrong_host=_context(trusted.issue_cert("elsewhere.example")),
        expired=_context(expired),
        trusted_pem=str(pem),
        good_chain=b"".join(blob.bytes() for blob in good.cert_chain_pems),
        good_key=good.private_key_pem.bytes(),
        trusted_bytes=trusted.cert_pem.bytes(),
        untrusted_chain=b"".join(blob.bytes() for blob in untrusted.cert_chain_pems),
        untrusted_key=untrusted.private_key_pem.bytes(),
    )


def _context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context
