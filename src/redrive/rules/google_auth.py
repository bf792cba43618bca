# SPDX-License-Identifier: Apache-2.0
"""google-auth: failing to get a token is the network's fault, the token server's, or that of the credentials."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code, Retryable
from redrive.core.provider import read_body
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.network import trouble_or_cause
from redrive.rules.shared.reading import attribute, listed, unless_caused


def _refresh(exc: BaseException, _now: float) -> Verdict | Code | None:
    """Read what the token endpoint said; google-auth marks the answers that heal as `retryable`, and drops their status."""
    if exc.__cause__ is not None:
        return None
    said = _said(exc)
    provider = read_body(said)
    code = provider.code
    # A token endpoint answers in JSON. A page is a gateway's, and google-auth marks it as final even when it was a 503.
    is_page = isinstance(said, str) and said.lstrip().startswith("<")
    if is_page or attribute(exc, "retryable") is True:
        heals = code is not None and code.retryable is Retryable.YES
        code = code if heals else taxonomy.UPSTREAM_ERROR
    return Verdict(code=code or taxonomy.AUTH_INVALID, provider_code=provider.name)


def _said(exc: BaseException) -> object:
    """Return the token endpoint's answer: its decoded JSON comes second, its text (when it is no JSON) first."""
    args = listed(attribute(exc, "args"))
    return next(iter((*args[1:2], *args[:1])), None)


RULES: Final[RuleTable] = {
    "RefreshError": _refresh,
    "OAuthError": _refresh,
    "TransportError": trouble_or_cause(taxonomy.NETWORK_ERROR),
    "TimeoutError": taxonomy.NETWORK_TIMEOUT,
    "ResponseError": unless_caused(taxonomy.NETWORK_PROTOCOL),
    "UserAccessTokenError": taxonomy.AUTH_INVALID,
    "DefaultCredentialsError": taxonomy.CONFIG_INVALID,
    "MutualTLSChannelError": taxonomy.CONFIG_INVALID,
    "ClientCertError": taxonomy.CONFIG_INVALID,
    "GoogleAuthError": unless_caused(taxonomy.AUTH_INVALID),
}
