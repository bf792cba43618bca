# SPDX-License-Identifier: Apache-2.0
"""Find the network failure inside a client library's connection error.

Client libraries wrap the socket's exception, each in its own way, in a general class. Refused, reset, not resolved and not trusted
are distinguished by the standard library's exception inside. Classes are compared by name, so that classifying an error does not
import `ssl`.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleFunction
from redrive.rules.shared.inspection import nested_exceptions, text_of

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


def network_code_in(exc: BaseException) -> Code | None:
    """Return the code of the outermost standard network exception inside; None when there is none."""
    return next((code for code in map(_network_code, nested_exceptions(exc)) if code is not None), None)


def network_or(fallback: Code) -> RuleFunction:
    """Build a rule for a connection error: the code of the socket's exception, else the fallback."""
    return lambda exc, _now: network_code_in(exc) or fallback


def network_or_cause(fallback: Code) -> RuleFunction:
    """Build a rule for a base class: the code of the socket's exception, else that of the cause, else the fallback."""
    return lambda exc, _now: network_code_in(exc) or (fallback if exc.__cause__ is None else None)


def proxy_code(exc: BaseException, _now: float) -> Code:
    """Distinguish a proxy that requires a login from one that fails; in every library only the text shows which."""
    wants_login = any(_PROXY_LOGIN.search(text_of(inner)) for inner in nested_exceptions(exc))
    return taxonomy.AUTH_INVALID if wants_login else taxonomy.NETWORK_PROXY


def _network_code(exc: BaseException) -> Code | None:
    for cls in type(exc).__mro__:
        known = _CLASSES.get(f"{cls.__module__}.{cls.__qualname__}")
        if known is not None:
            return known
    # The number of an ssl.SSLError is OpenSSL's, not the system's, but its class was already found above.
    return _ERRNOS.get(exc.errno) if isinstance(exc, OSError) and isinstance(exc.errno, int) else None
