# SPDX-License-Identifier: Apache-2.0
"""redis-py: by class; where the server's answer has no class of its own, by the word the answer starts with.

That word (WRONGTYPE, BUSY, ...) is part of the protocol, not prose. A connection error keeps the socket's exception only as its
context, which is trusted no further than to say what kind of trouble with the network it was.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.reading import attribute, text_of
from redrive.rules.shared.wrapped import network_trouble

_WORDS: Final[dict[str, Code]] = {
    "BUSY": taxonomy.UPSTREAM_OVERLOADED,  # a script holds the server
    "BUSYGROUP": taxonomy.CONFLICT,
    "BUSYKEY": taxonomy.CONFLICT,
    "INPROG": taxonomy.UPSTREAM_NOT_READY,
    "LOADING": taxonomy.NETWORK_UNAVAILABLE,
    "MASTERDOWN": taxonomy.NETWORK_UNAVAILABLE,
    "MISCONF": taxonomy.UPSTREAM_ERROR,  # the server cannot save and so refuses to write
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
    # Of all answers that redis-py turns into a connection error, only "max number of clients reached" starts with ERR.
    if attribute(exc, "status_code") == "ERR":
        return taxonomy.RESOURCE_EXHAUSTED
    beneath = exc.__cause__ or exc.__context__
    if type(beneath).__name__ == "Empty":  # the blocking pool's queue of free connections
        return taxonomy.RESOURCE_EXHAUSTED
    return network_trouble(exc, now) or taxonomy.NETWORK_RESET


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
    # A failover leaves clients at a replica for a moment; the next connection finds the new primary.
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
    # "Redis Cluster cannot be connected" is raised as the bare root of the cluster's errors.
    "RedisClusterException": taxonomy.NETWORK_UNAVAILABLE,
    # The server's memory, not ours, and it heals as keys expire.
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
