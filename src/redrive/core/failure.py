# SPDX-License-Identifier: Apache-2.0
"""Categories, severities, codes, and one failure as a value.

A `Code` describes a kind of failure and what may be done about it; a `Failure` is one occurrence. Neither decides anything:
`core.decide` does. A failure's message is not redacted; redact it before writing it anywhere.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from redrive.errors import ConfigurationError


class Category(StrEnum):
    """What kind of thing went wrong, at the coarsest level."""

    NETWORK = "network"  # the dependency could not be reached, or a gateway before it failed (CR-1.1)
    RATE_LIMIT = "rate_limit"  # the dependency asks us to slow down, or a quota is spent (CR-1.2)
    UPSTREAM = "upstream"  # the dependency reported a failure of its own (CR-1.3)
    CONFLICT = "conflict"  # a write raced with another one (CR-1.4)
    VALIDATION = "validation"  # a request or an answer has the wrong form (CR-1.5)
    AUTH = "auth"  # credentials or permissions (CR-1.6)
    NOT_FOUND = "not_found"  # the target does not exist (CR-1.7)
    REJECTED = "rejected"  # a policy or business rule refused it (CR-1.8)
    BUG = "bug"  # our code or our configuration (CR-1.9)
    IO = "io"  # local disks and files
    CAPACITY = "capacity"  # a local resource ran out: queue, memory, disk, file descriptors


class Severity(StrEnum):
    """How serious a failure is. Names and order are those of stdlib logging."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class Retryable(StrEnum):
    """Whether trying again can help."""

    YES = "yes"
    NO = "no"
    IF_IDEMPOTENT = "if_idempotent"  # only if the stage may run twice without harm (CR-1.4)

    def holds(self, *, idempotent: bool) -> bool:
        """Return whether a stage that is, or is not, idempotent may retry."""
        return self is Retryable.YES or (self is Retryable.IF_IDEMPOTENT and idempotent)


class SignalKind(StrEnum):
    """Which signal a stage raised or returned."""

    RETRY = "retry"
    SNOOZE = "snooze"
    CANCEL = "cancel"
    FAIL = "fail"
    SKIP = "skip"


class Code(Struct, frozen=True, kw_only=True):
    """One stable failure code: data, never behaviour."""

    name: str
    category: Category
    retryable: Retryable
    severity: Severity
    line: str
    """One short line for people: no jargon, no internals."""
    hint: str
    """What an operator should do about it."""
    is_reachability: bool = False
    """True when the dependency cannot be reached or cannot serve; such failures open a breaker by default."""
    max_attempts: int | None = None
    """How many attempts may fail with this code before the job is given up, even if the policy's limit allows more."""

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("_", "").isalnum() or self.name != self.name.upper():
            raise ConfigurationError(
                field="Code.name",
                value=self.name,
                rule="must be UPPER_CASE letters, digits and underscores",
                fix="Rename the code.",
            )
        if not self.line.strip():
            raise ConfigurationError(
                field=f"Code({self.name}).line",
                value=self.line,
                rule="must not be empty",
                fix="Write one short sentence.",
            )
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ConfigurationError(
                field=f"Code({self.name}).max_attempts",
                value=self.max_attempts,
                rule="must be at least 1 (the first attempt counts)",
                fix="Leave it out for no limit of its own.",
            )


class Failure(Struct, frozen=True, kw_only=True):
    """One failure, classified: everything `decide`, the breaker and the dead letter need to know about it.

    A Struct rather than a dataclass: one is built for every failed attempt, and this is five times cheaper.
    """

    code: str
    category: Category
    retryable: bool
    severity: Severity
    message: str
    """The exception's message, cut to a bounded length and not redacted."""
    exception: str
    """The dotted name of the exception's class."""
    lineage: tuple[str, ...] = ()
    """The dotted names of every class that the exception is an instance of, then those of the inner exception with the rule."""
    rule: str
    """Which rule matched, for `explain`."""
    canonical: str
    """The built-in code behind `code`; equal to it unless an application's own code set renamed it."""
    retry_after: float | None = None
    """Seconds the dependency asked us to wait; implausible values are already removed."""
    http_status: int | None = None
    provider_code: str | None = None
    """The dependency's own name for the failure, such as `rate_limit_exceeded`."""
    request_id: str | None = None
    """The dependency's id for the request, as its support asks for it."""
    is_reachability: bool = False
    is_unknown: bool = False
    """True when no rule matched the exception, so that it counts as a bug."""
    max_attempts: int | None = None
    signal: SignalKind | None = None
    """The signal the stage sent, which overrules the classifier."""
    line: str = ""
    hint: str = ""

    @property
    def proves_alive(self) -> bool:
        """Return whether the dependency answered, so that the failure proves it alive."""
        return not self.is_reachability and (self.http_status is not None or self.provider_code is not None)
