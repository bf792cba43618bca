# SPDX-License-Identifier: Apache-2.0
"""urllib3, also used by requests and botocore: its MaxRetryError has the real error in `reason`."""

from __future__ import annotations

import re
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import code_for_status
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import apply_table, attribute, text_of
from redrive.rules.shared.network import network_code_in, network_or, network_or_cause, proxy_code

_GAVE_UP_ON: Final = re.compile(r"too many ([1-5]\d\d) error responses")


def _after_retries(exc: BaseException, now: float) -> Verdict | Code | None:
    reason = attribute(exc, "reason")
    if isinstance(reason, BaseException) and reason is not exc:
        answer = None if type(reason).__name__ == "MaxRetryError" else apply_table(RULES, reason, now)
        return answer or network_code_in(reason) or taxonomy.NETWORK_ERROR
    return network_code_in(exc) or taxonomy.NETWORK_ERROR


def _retries_spent(exc: BaseException, _now: float) -> Verdict | Code:
    """Read the status at which urllib3's own retries stopped; the exception has it only in its text."""
    found = _GAVE_UP_ON.search(text_of(exc))
    if found:
        status = int(found[1])
        return Verdict(code=code_for_status(status), http_status=status)
    return taxonomy.REQUEST_INVALID


RULES: Final[RuleTable] = {
    "MaxRetryError": _after_retries,
    "ResponseError": _retries_spent,
    "NameResolutionError": taxonomy.NETWORK_DNS,
    # Since 2.0 it derives from ConnectTimeoutError, although a refused connection is not a timeout.
    "NewConnectionError": network_or(taxonomy.NETWORK_ERROR),
    "TimeoutError": taxonomy.NETWORK_TIMEOUT,
    "SSLError": network_or(taxonomy.NETWORK_TLS),
    "ProxyError": proxy_code,
    "IncompleteRead": taxonomy.NETWORK_PROTOCOL,
    "InvalidChunkLength": taxonomy.NETWORK_PROTOCOL,
    "BodyNotHttplibCompatible": taxonomy.NETWORK_PROTOCOL,
    "HeaderParsingError": taxonomy.NETWORK_PROTOCOL,
    "InvalidHeader": taxonomy.NETWORK_PROTOCOL,
    "ProtocolError": network_or(taxonomy.NETWORK_PROTOCOL),
    "DecodeError": taxonomy.SCHEMA_INVALID,
    "EmptyPoolError": taxonomy.RESOURCE_EXHAUSTED,
    "FullPoolError": taxonomy.RESOURCE_EXHAUSTED,
    "ClosedPoolError": taxonomy.BUG_CODE,
    "HostChangedError": taxonomy.BUG_CODE,
    "TimeoutStateError": taxonomy.BUG_CODE,
    "UnrewindableBodyError": taxonomy.BUG_CODE,
    "ProxySchemeUnknown": taxonomy.CONFIG_INVALID,
    "ProxySchemeUnsupported": taxonomy.CONFIG_INVALID,
    "LocationValueError": taxonomy.CONFIG_INVALID,
    "HTTPError": network_or_cause(taxonomy.NETWORK_ERROR),
}
