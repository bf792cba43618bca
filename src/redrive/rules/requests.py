# SPDX-License-Identifier: Apache-2.0
"""requests: its ConnectionError hides urllib3's exception in `args`, and that one hides the socket's."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules import urllib3
from redrive.rules.shared.network import proxy_trouble, trouble_in, trouble_or
from redrive.rules.shared.reading import attribute, consult, hidden_in, home_of, read_response


def _answer(exc: BaseException, now: float) -> Verdict | Code:
    # An HTTPError without a response is raised by programs, not by the library; all it says is that there was an error.
    return read_response(attribute(exc, "response"), now) or taxonomy.REQUEST_INVALID


def _connection(exc: BaseException, now: float) -> Verdict | Code:
    for inner in hidden_in(exc):
        answer = consult(urllib3.RULES, inner, now) if _is_urllib3(inner) else None
        if answer is not None:
            return answer
    return trouble_in(exc) or taxonomy.NETWORK_ERROR


def _is_urllib3(exc: BaseException) -> bool:
    return home_of(type(exc)) == "urllib3"


RULES: Final[RuleTable] = {
    "HTTPError": _answer,
    # A ConnectionError before it is a Timeout, but never one of the others that are.
    "ConnectTimeout": taxonomy.NETWORK_TIMEOUT,
    "Timeout": taxonomy.NETWORK_TIMEOUT,
    "ProxyError": proxy_trouble,
    "SSLError": trouble_or(taxonomy.NETWORK_TLS),
    "ConnectionError": _connection,
    "RetryError": _connection,
    "ChunkedEncodingError": trouble_or(taxonomy.NETWORK_PROTOCOL),
    "ContentDecodingError": taxonomy.SCHEMA_INVALID,
    "JSONDecodeError": taxonomy.SCHEMA_INVALID,
    # Raised for a payload that cannot be sent as JSON; only its subclass above speaks of an answer.
    "InvalidJSONError": taxonomy.BUG_CODE,
    "InvalidProxyURL": taxonomy.CONFIG_INVALID,
    "InvalidURL": taxonomy.REQUEST_INVALID,
    "InvalidSchema": taxonomy.REQUEST_INVALID,
    "MissingSchema": taxonomy.REQUEST_INVALID,
    "URLRequired": taxonomy.REQUEST_INVALID,
    "InvalidHeader": taxonomy.REQUEST_INVALID,
    "TooManyRedirects": taxonomy.REQUEST_INVALID,
    "StreamConsumedError": taxonomy.BUG_CODE,
    "UnrewindableBodyError": taxonomy.BUG_CODE,
    "RequestException": _connection,
}
