# SPDX-License-Identifier: Apache-2.0
"""google-auth: getting a token fails because of the network, the token server or the credentials."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code, Retryable
from redrive.core.provider import read_body
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, listed, unless_caused
from redrive.rules.shared.network import network_or_cause


def _refresh(exc: BaseException, _now: float) -> Verdict | Code | None:
    """Read the token endpoint's answer; google-auth marks temporary failures as `retryable`, and drops the status."""
    if exc.__cause__ is not None:
        return None
    answer = _endpoint_answer(exc)
    provider = read_body(answer)
    code = provider.code
    # A token endpoint answers in JSON. An HTML page comes from a gateway; google-auth marks it as final even if it was a 503.
    is_page = isinstance(answer, str) and answer.lstrip().startswith("<")
    if is_page or attribute(exc, "retryable") is True:
        heals = code is not None and code.retryable is Retryable.YES
        code = code if heals else taxonomy.UPSTREAM_ERROR
    return Verdict(code=code or taxonomy.AUTH_INVALID, provider_code=provider.name)


def _endpoint_answer(exc: BaseException) -> object:
    """Return the token endpoint's answer: the second argument is the decoded JSON, the first is the text."""
    args = listed(attribute(exc, "args"))
    return next(iter((*args[1:2], *args[:1])), None)


RULES: Final[RuleTable] = {
    "RefreshError": _refresh,
    "OAuthError": _refresh,
    "TransportError": network_or_cause(taxonomy.NETWORK_ERROR),
    "TimeoutError": taxonomy.NETWORK_TIMEOUT,
    "ResponseError": unless_caused(taxonomy.NETWORK_PROTOCOL),
    "UserAccessTokenError": taxonomy.AUTH_INVALID,
    "DefaultCredentialsError": taxonomy.CONFIG_INVALID,
    "MutualTLSChannelError": taxonomy.CONFIG_INVALID,
    "ClientCertError": taxonomy.CONFIG_INVALID,
    "GoogleAuthError": unless_caused(taxonomy.AUTH_INVALID),
}
