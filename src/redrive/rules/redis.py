# SPDX-License-Identifier: Apache-2.0
"""redis-py: by class; an answer of the server without a class of its own, by its first word.

The protocol defines that word (WRONGTYPE, BUSY, ...). A connection error has the socket's exception only as its context, which is
used only for the kind of network failure.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, text_of
from redrive.rules.shared.wrapped import network_code_in_context

_WORDS: Final[dict[str, Code]] = {
    "BUSY": taxonomy.UPSTREAM_OVERLOADED,  # a script blocks the server
    "BUSYGROUP": taxonomy.CONFLICT,
    "BUSYKEY": taxonomy.CONFLICT,
    "INPROG": taxonomy.UPSTREAM_NOT_READY,
    "LOADING": taxonomy.NETWORK_UNAVAILABLE,
    "MASTERDOWN": taxonomy.NETWORK_UNAVAILABLE,
    "MISCONF": taxonomy.UPSTREAM_ERROR,  # the server cannot save to disk, so it refuses writes
    "NOAUTH": taxonomy.AUTH_INVALID,
    "NOGOODSLAVE": taxonomy.NETWORK_UNAVAILABLE,
    "NOGROUP": taxonomy.NOT_FOUND,
    "NOPERM": taxonomy.AUTH_DENIED,
    "NOREPLICAS": taxonomy.NETWORK_UNAVAILABLE,
    "NOTBUSY": taxonomy.BUG_CODE,
    "OOM": taxonomy.UPSTREAM_OVERLOADED,
    "READONLY": taxonomy.NETWORK_UNAVAILABLE,
    "UNBLOCKED": taxonomy.NETWORK_UNAVAILABLE,
    "WRONGPASS": taxonomy.AUTH_INVALID,
    "WRONGTYPE": taxonomy.BUG_CODE,
}
_FIRST_WORD: Final = re.compile(r"([A-Z]{2,20})\b")


def _answered(exc: BaseException, _now: float) -> Verdict | Code:
    status = attribute(exc, "status_code")
    found = _FIRST_WORD.match(text_of(exc))
    word = status if isinstance(status, str) else (found[1] if found else None)
    if word is None:
        return taxonomy.REQUEST_INVALID
    return Verdict(code=_WORDS.get(word, taxonomy.REQUEST_INVALID), provider_code=word)


def _connection(exc: BaseException, now: float) -> Verdict | Code:
    # Among the answers that redis-py raises as a connection error, only "max number of clients reached" starts with ERR.
    if attribute(exc, "status_code") == "ERR":
        return taxonomy.RESOURCE_EXHAUSTED
    inner = exc.__cause__ or exc.__context__
    if type(inner).__name__ == "Empty":  # the blocking pool's queue of free connections
        return taxonomy.RESOURCE_EXHAUSTED
    return network_code_in_context(exc, now) or taxonomy.NETWORK_RESET


RULES: Final[RuleTable] = {
    "AuthenticationError": taxonomy.AUTH_INVALID,
    "AuthenticationWrongNumberOfArgsError": taxonomy.AUTH_INVALID,
    "ExternalAuthProviderError": taxonomy.UPSTREAM_ERROR,
    "AuthorizationError": taxonomy.AUTH_DENIED,
    "NoPermissionError": taxonomy.AUTH_DENIED,
    "BusyLoadingError": taxonomy.NETWORK_UNAVAILABLE,
    "MaxConnectionsError": taxonomy.RESOURCE_EXHAUSTED,
    "TimeoutError": taxonomy.NETWORK_TIMEOUT,
    "ConnectionError": _connection,
    "InvalidResponse": taxonomy.NETWORK_PROTOCOL,
    # After a failover a client may still use a replica; the next connection finds the new primary.
    "ReadOnlyError": taxonomy.NETWORK_UNAVAILABLE,
    "ClusterDownError": taxonomy.NETWORK_UNAVAILABLE,
    "ClusterError": taxonomy.NETWORK_UNAVAILABLE,
    "SlotNotCoveredError": taxonomy.NETWORK_UNAVAILABLE,
    "TryAgainError": taxonomy.UPSTREAM_NOT_READY,
    "AskError": taxonomy.UPSTREAM_NOT_READY,
    "MovedError": taxonomy.UPSTREAM_NOT_READY,
    "ClusterCrossSlotError": taxonomy.BUG_CODE,
    "CrossSlotTransactionError": taxonomy.BUG_CODE,
    "InvalidPipelineStack": taxonomy.BUG_CODE,
    # "Redis Cluster cannot be connected" is raised as the base class of the cluster's errors.
    "RedisClusterException": taxonomy.NETWORK_UNAVAILABLE,
    # The server's memory, not ours; it recovers as keys expire.
    "OutOfMemoryError": taxonomy.UPSTREAM_OVERLOADED,
    "NoScriptError": taxonomy.NOT_FOUND,
    "ModuleError": taxonomy.CONFIG_INVALID,
    "ExecAbortError": taxonomy.BUG_CODE,
    "ResponseError": _answered,
    "WatchError": taxonomy.CONFLICT,
    "LockError": taxonomy.CONFLICT,
    "DataError": taxonomy.BUG_CODE,
    "PubSubError": taxonomy.BUG_CODE,
    "ChildDeadlockedError": taxonomy.BUG_CODE,
    "IncorrectPolicyType": taxonomy.BUG_CODE,
}
