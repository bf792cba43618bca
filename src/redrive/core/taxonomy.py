# SPDX-License-Identifier: Apache-2.0
"""The canonical failure codes: one table, in the order of `docs/failures.md`, which is generated from it.

Codes are an interface: they are stored, counted and alerted on, so a released one never changes its name or meaning.
Applications that need codes of their own put a `core.codeset.CodeSet` over this table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from redrive.core.arguments import did_you_mean
from redrive.core.failure import Category, Code, Retryable, Severity
from redrive.errors import ConfigurationError

SURELY: Final = 0.92
"""So similar to a canonical code, a name is a mistyped one, and not the own code of an application."""
_YES, _NO, _IF_IDEMPOTENT = Retryable.YES, Retryable.NO, Retryable.IF_IDEMPOTENT
_INFO, _WARNING, _ERROR, _CRITICAL = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.CRITICAL


def _down(name: str, line: str, hint: str, *, category: Category = Category.NETWORK) -> Code:
    """Build a retryable code that counts against the dependency's reachability."""
    return Code(
        name=name,
        category=category,
        retryable=_YES,
        severity=_WARNING,
        line=line,
        hint=hint,
        is_reachability=True,
    )


def _retryable(name: str, category: Category, line: str, hint: str) -> Code:
    return Code(name=name, category=category, retryable=_YES, severity=_WARNING, line=line, hint=hint)


def _permanent(name: str, category: Category, line: str, hint: str, *, severity: Severity = _ERROR) -> Code:
    return Code(name=name, category=category, retryable=_NO, severity=severity, line=line, hint=hint)


_CHECK_NETWORK = "Check that the host is up and reachable from the worker, then replay."
_CHECK_UPSTREAM = "Check the dependency's status page and capacity, then replay."

NETWORK_ERROR: Final = _down("NETWORK_ERROR", "The connection failed.", _CHECK_NETWORK)
NETWORK_TIMEOUT: Final = _down("NETWORK_TIMEOUT", "The other side took too long to answer.", _CHECK_NETWORK)
NETWORK_DNS: Final = _down(
    "NETWORK_DNS",
    "The host name could not be resolved.",
    "Check the host name and the resolver, then replay.",
)
NETWORK_REFUSED: Final = _down("NETWORK_REFUSED", "The other side refused the connection.", _CHECK_NETWORK)
NETWORK_RESET: Final = _down("NETWORK_RESET", "The connection was lost.", _CHECK_NETWORK)
NETWORK_UNREACHABLE: Final = _down("NETWORK_UNREACHABLE", "There is no route to the host.", _CHECK_NETWORK)
NETWORK_TLS: Final = _down("NETWORK_TLS", "The encrypted connection could not be set up.", _CHECK_NETWORK)
NETWORK_PROXY: Final = _down(
    "NETWORK_PROXY", "The proxy failed.", "Check the proxy's address and health, then replay."
)
NETWORK_PROTOCOL: Final = _down(
    "NETWORK_PROTOCOL",
    "The answer was cut short or malformed.",
    "Look for a proxy that cuts answers short, then replay.",
)
NETWORK_BAD_GATEWAY: Final = _down(
    "NETWORK_BAD_GATEWAY", "A gateway got an invalid answer (502).", _CHECK_UPSTREAM
)
NETWORK_UNAVAILABLE: Final = _down(
    "NETWORK_UNAVAILABLE", "The service is unavailable (503).", _CHECK_UPSTREAM
)
NETWORK_GATEWAY_TIMEOUT: Final = _down(
    "NETWORK_GATEWAY_TIMEOUT", "A gateway got no answer in time (504).", _CHECK_UPSTREAM
)
TIMEOUT: Final = _down(
    "TIMEOUT",
    "The attempt took longer than allowed.",
    "Find out what is slow, or raise the stage's timeout, then replay.",
)

BREAKER_OPEN: Final = _retryable(
    "BREAKER_OPEN",
    Category.NETWORK,
    "Calls to the service are paused.",
    "Check the dependency behind the breaker; calls resume by themselves.",
)

RATE_LIMITED: Final = _retryable(
    "RATE_LIMITED",
    Category.RATE_LIMIT,
    "The service asks us to slow down.",
    "Lower the concurrency or ask for a higher limit.",
)
QUOTA_EXHAUSTED: Final = _permanent(
    "QUOTA_EXHAUSTED",
    Category.RATE_LIMIT,
    "The quota or the credit is used up.",
    "Raise the quota or the plan, or wait for the next billing period, then replay.",
)

UPSTREAM_ERROR: Final = _down(
    "UPSTREAM_ERROR", "The service failed on its side.", _CHECK_UPSTREAM, category=Category.UPSTREAM
)
UPSTREAM_OVERLOADED: Final = _down(
    "UPSTREAM_OVERLOADED", "The service is overloaded.", _CHECK_UPSTREAM, category=Category.UPSTREAM
)
UPSTREAM_NOT_READY: Final = _retryable(
    "UPSTREAM_NOT_READY", Category.UPSTREAM, "The service is not ready for this request yet.", _CHECK_UPSTREAM
)
UPSTREAM_UNSUPPORTED: Final = _permanent(
    "UPSTREAM_UNSUPPORTED",
    Category.UPSTREAM,
    "The service does not support this request (501, 505).",
    "Change the request: another method, protocol version or API.",
)

CONFLICT: Final = Code(
    name="CONFLICT",
    category=Category.CONFLICT,
    retryable=_IF_IDEMPOTENT,
    severity=_WARNING,
    line="It conflicts with another write.",
    hint="Declare the stage idempotent if it is, so that it is retried; otherwise compare both writes, then replay.",
)

SCHEMA_INVALID: Final = _permanent(
    "SCHEMA_INVALID",
    Category.VALIDATION,
    "The content does not have the expected form.",
    "Correct the payload, then replay.",
)
REQUEST_INVALID: Final = _permanent(
    "REQUEST_INVALID",
    Category.VALIDATION,
    "The service did not accept the request.",
    "Read the service's message, correct the payload or the mapping, then replay.",
)
REQUEST_TOO_LARGE: Final = _permanent(
    "REQUEST_TOO_LARGE",
    Category.VALIDATION,
    "The request is too large.",
    "Split or shorten the payload, then replay.",
)

AUTH_INVALID: Final = _permanent(
    "AUTH_INVALID",
    Category.AUTH,
    "The credentials were not accepted.",
    "Rotate or correct the credentials, then replay.",
    severity=_CRITICAL,
)
AUTH_DENIED: Final = _permanent(
    "AUTH_DENIED",
    Category.AUTH,
    "Permission was denied.",
    "Grant the permission, or use credentials that have it, then replay.",
    severity=_CRITICAL,
)

NOT_FOUND: Final = _permanent(
    "NOT_FOUND",
    Category.NOT_FOUND,
    "The target does not exist.",
    "Check the reference in the payload; restore the target, then replay.",
)
REJECTED_POLICY: Final = _permanent(
    "REJECTED_POLICY",
    Category.REJECTED,
    "A content policy or business rule refused it.",
    "Review the content; discard the letter, or change the payload and replay, if the refusal was unexpected.",
)

BUG_UNKNOWN: Final = _permanent(
    "BUG_UNKNOWN",
    Category.BUG,
    "Something went wrong.",
    "Read the stack; fix the code, or add a rule for this exception, then replay.",
    severity=_CRITICAL,
)
BUG_CODE: Final = _permanent(
    "BUG_CODE",
    Category.BUG,
    "The program made a mistake.",
    "Read the stack; fix the code and deploy, or correct the payload if its data is wrong, then replay.",
    severity=_CRITICAL,
)
CONFIG_INVALID: Final = _permanent(
    "CONFIG_INVALID",
    Category.BUG,
    "The program is not configured correctly.",
    "Fix the configuration, then replay.",
    severity=_CRITICAL,
)
TLS_CERTIFICATE: Final = _permanent(
    "TLS_CERTIFICATE",
    Category.BUG,
    "The server's certificate is not trusted.",
    "Renew the certificate or trust its issuer, then replay.",
    severity=_CRITICAL,
)
WORKER_CRASH: Final = _permanent(
    "WORKER_CRASH",
    Category.BUG,
    "The process that ran it died.",
    "Look for memory limits and native crashes in this stage; fix them, then replay.",
    severity=_CRITICAL,
)
JOB_EXPIRED: Final = _permanent(
    "JOB_EXPIRED",
    Category.REJECTED,
    "It was not started in time.",
    "Replay it if it still matters; add workers, or give it a later expires_at.",
    severity=_WARNING,
)
STAGE_FAILED: Final = _permanent(
    "STAGE_FAILED",
    Category.REJECTED,
    "The stage gave up.",
    "Read the stage's own message; fix the cause, then replay.",
)
RETRY_ASKED: Final = _retryable(
    "RETRY_ASKED", Category.UPSTREAM, "The stage asked for a retry.", "Check what the stage waits for."
)
CANCELLED: Final = _permanent(
    "CANCELLED",
    Category.REJECTED,
    "It was cancelled.",
    "Nothing to do, unless it was cancelled by mistake.",
    severity=_WARNING,
)
SKIPPED: Final = _permanent(
    "SKIPPED",
    Category.REJECTED,
    "The stage skipped it.",
    "Nothing to do: the stage said why in its message.",
    severity=_INFO,
)

IO_ERROR: Final = _retryable(
    "IO_ERROR", Category.IO, "Reading or writing failed.", "Check the disk and its permissions, then replay."
)
IO_NOT_FOUND: Final = _permanent(
    "IO_NOT_FOUND", Category.IO, "A file is missing.", "Restore the file or correct its path, then replay."
)
IO_DENIED: Final = _permanent(
    "IO_DENIED", Category.IO, "Access to a file was denied.", "Correct the file's permissions, then replay."
)

DISK_FULL: Final = _permanent(
    "DISK_FULL", Category.CAPACITY, "The disk is full.", "Free space, then replay.", severity=_CRITICAL
)
OUT_OF_MEMORY: Final = _permanent(
    "OUT_OF_MEMORY",
    Category.CAPACITY,
    "There was not enough memory.",
    "Give the worker more memory or split the payload, then replay.",
    severity=_CRITICAL,
)
QUEUE_FULL: Final = _retryable(
    "QUEUE_FULL", Category.CAPACITY, "A queue is full.", "Wait, or add capacity behind the queue."
)
LOCAL_TIMEOUT: Final = _retryable(
    "LOCAL_TIMEOUT",
    Category.CAPACITY,
    "A local operation took too long.",
    "Find out what it waited for (a child process, a lock, a slow query), or raise its limit, then replay.",
)
RESOURCE_EXHAUSTED: Final = _retryable(
    "RESOURCE_EXHAUSTED",
    Category.CAPACITY,
    "The machine ran out of a resource.",
    "Raise the limit (files, threads, connections).",
)

CODES: Final[dict[str, Code]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Code)
}
"""Every canonical code by name, in the order above."""


def code_named(name: str) -> Code:
    """Return the canonical code with this name; the error for an unknown one lists similar names."""
    try:
        return CODES[name]
    except KeyError:
        raise ConfigurationError(
            field="code",
            value=name,
            rule="must be one of the canonical codes",
            fix=did_you_mean(str(name), CODES) or "docs/failures.md lists them.",
        ) from None


def refuse_mistyped(
    field: str, names: Iterable[object], own: Iterable[str] = (), *, similar: float = SURELY
) -> None:
    """Refuse a name that resembles a known code or category; others may be a provider's or an application's own."""
    known = (*CODES, *Category, *own)
    for name in names:
        fix = did_you_mean(name, known, at_least=similar) if isinstance(name, str) else ""
        if fix and name not in known:
            raise ConfigurationError(field=field, value=name, rule="must hold known codes", fix=fix)
