# SPDX-License-Identifier: Apache-2.0
"""urllib3, also beneath requests and botocore: its MaxRetryError carries what really happened in `reason`."""

from __future__ import annotations

import re
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import code_for_status
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.network import proxy_trouble, trouble_in, trouble_or, trouble_or_cause
from redrive.rules.shared.reading import attribute, consult, text_of

_GAVE_UP_ON: Final = re.compile(r"too many ([1-5]\d\d) error responses")


def _after_retries(exc: BaseException, now: float) -> Verdict | Code | None:
    reason = attribute(exc, "reason")
    if isinstance(reason, BaseException) and reason is not exc:
        answer = None if type(reason).__name__ == "MaxRetryError" else consult(RULES, reason, now)
        return answer or trouble_in(reason) or taxonomy.NETWORK_ERROR
    return trouble_in(exc) or taxonomy.NETWORK_ERROR


def _retries_spent(exc: BaseException, _now: float) -> Verdict | Code:
    """Read why urllib3's own retries stopped; the text is all it keeps of the answers."""
    found = _GAVE_UP_ON.search(text_of(exc))
    if found:
        status = int(found[1])
        return Verdict(code=code_for_status(status), http_status=status)
    return taxonomy.REQUEST_INVALID


RULES: Final[RuleTable] = {
    "MaxRetryError": _after_retries,
    "ResponseError": _retries_spent,
    "NameResolutionError": taxonomy.NETWORK_DNS,
    # Since 2.0 it derives from ConnectTimeoutError, although a refused connection is no timeout.
    "NewConnectionError": trouble_or(taxonomy.NETWORK_ERROR),
    "TimeoutError": taxonomy.NETWORK_TIMEOUT,
    "SSLError": trouble_or(taxonomy.NETWORK_TLS),
    "ProxyError": proxy_trouble,
    "IncompleteRead": taxonomy.NETWORK_PROTOCOL,
    "InvalidChunkLength": taxonomy.NETWORK_PROTOCOL,
    "BodyNotHttplibCompatible": taxonomy.NETWORK_PROTOCOL,
    "HeaderParsingError": taxonomy.NETWORK_PROTOCOL,
    "InvalidHeader": taxonomy.NETWORK_PROTOCOL,
    "ProtocolError": trouble_or(taxonomy.NETWORK_PROTOCOL),
    "DecodeError": taxonomy.SCHEMA_INVALID,
    "EmptyPoolError": taxonomy.RESOURCE_EXHAUSTED,
    "FullPoolError": taxonomy.RESOURCE_EXHAUSTED,
    "ClosedPoolError": taxonomy.BUG_CODE,
    "HostChangedError": taxonomy.BUG_CODE,
    "TimeoutStateError": taxonomy.BUG_CODE,
    "UnrewindableBodyError": taxonomy.BUG_CODE,
    "ProxySchemeUnknown": taxonomy.CONFIG_INVALID,
    "ProxySchemeUnsupported": taxonomy.CONFIG_INVALID,
    "LocationValueError": taxonomy.REQUEST_INVALID,
    "HTTPError": trouble_or_cause(taxonomy.NETWORK_ERROR),
}
