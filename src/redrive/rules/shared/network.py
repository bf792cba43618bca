# SPDX-License-Identifier: Apache-2.0
"""Which trouble with the network hides inside a client library's connection error.

Client libraries wrap what the socket said, each in its own way, and their own class names say little more than "connection
error". Refused, reset, not resolved and not trusted are told apart by the standard library's exception at the bottom. Classes are
compared by name, so that reading an error does not import `ssl`.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleFunction
from redrive.rules.shared.reading import hidden_in, text_of

_CLASSES: Final[dict[str, Code]] = {
    "ssl.SSLCertVerificationError": taxonomy.TLS_CERTIFICATE,
    "urllib3.util.ssl_match_hostname.CertificateError": taxonomy.TLS_CERTIFICATE,
    "ssl.SSLError": taxonomy.NETWORK_TLS,
    "socket.gaierror": taxonomy.NETWORK_DNS,
    "socket.herror": taxonomy.NETWORK_DNS,
    "builtins.ConnectionRefusedError": taxonomy.NETWORK_REFUSED,
    "builtins.ConnectionError": taxonomy.NETWORK_RESET,
    "builtins.TimeoutError": taxonomy.NETWORK_TIMEOUT,
    "http.client.HTTPException": taxonomy.NETWORK_PROTOCOL,
}
_ERRNOS: Final[dict[int, Code]] = {
    errno.ECONNREFUSED: taxonomy.NETWORK_REFUSED,
    errno.ECONNRESET: taxonomy.NETWORK_RESET,
    errno.ECONNABORTED: taxonomy.NETWORK_RESET,
    errno.EPIPE: taxonomy.NETWORK_RESET,
    errno.ETIMEDOUT: taxonomy.NETWORK_TIMEOUT,
    errno.EHOSTUNREACH: taxonomy.NETWORK_UNREACHABLE,
    errno.ENETUNREACH: taxonomy.NETWORK_UNREACHABLE,
    errno.ENETDOWN: taxonomy.NETWORK_UNREACHABLE,
    errno.EMFILE: taxonomy.RESOURCE_EXHAUSTED,
    errno.ENFILE: taxonomy.RESOURCE_EXHAUSTED,
    errno.ENOBUFS: taxonomy.RESOURCE_EXHAUSTED,
    errno.EADDRNOTAVAIL: taxonomy.RESOURCE_EXHAUSTED,
}
_PROXY_LOGIN: Final = re.compile(r"\b407\b")


def trouble_in(exc: BaseException) -> Code | None:
    """Return what the outermost standard exception inside means, or None when there is none that says anything."""
    return next((code for code in map(_trouble, hidden_in(exc)) if code is not None), None)


def trouble_or(fallback: Code) -> RuleFunction:
    """Build a rule for a connection error: what the socket said, else what the library's class says by itself."""
    return lambda exc, _now: trouble_in(exc) or fallback


def trouble_or_cause(fallback: Code) -> RuleFunction:
    """Build a rule for a root class: what the socket said, else what it was raised from, else the fallback."""
    return lambda exc, _now: trouble_in(exc) or (fallback if exc.__cause__ is None else None)


def proxy_trouble(exc: BaseException, _now: float) -> Code:
    """Tell a proxy that wants other credentials from one that fails; only the text says which, in every library."""
    wants_login = any(_PROXY_LOGIN.search(text_of(inner)) for inner in hidden_in(exc))
    return taxonomy.AUTH_INVALID if wants_login else taxonomy.NETWORK_PROXY


def _trouble(exc: BaseException) -> Code | None:
    for cls in type(exc).__mro__:
        known = _CLASSES.get(f"{cls.__module__}.{cls.__qualname__}")
        if known is not None:
            return known
    # The number of an ssl.SSLError is OpenSSL's and not the system's, but those were all found by their class.
    return _ERRNOS.get(exc.errno) if isinstance(exc, OSError) and isinstance(exc.errno, int) else None
