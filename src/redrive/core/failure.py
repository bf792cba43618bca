# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of failure: categories, severities, codes, and one failure as a value.

A `Code` says what kind of thing went wrong and what may be done about it; a `Failure` is one occurrence of it. Neither decides
anything: that is `core.policy`. A failure's message is as the exception had it; whoever writes it down redacts it first.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from redrive.errors import ConfigurationError


class Category(StrEnum):
    """What kind of thing went wrong; the coarsest answer an operator wants first."""

    NETWORK = "network"  # the dependency could not be reached, or a gateway before it failed (CR-1.1)
    RATE_LIMIT = "rate_limit"  # the dependency asks us to slow down, or a quota is spent (CR-1.2)
    UPSTREAM = "upstream"  # the dependency answered that it failed itself (CR-1.3)
    CONFLICT = "conflict"  # a write raced with another one (CR-1.4)
    VALIDATION = "validation"  # what we sent or received has the wrong form (CR-1.5)
    AUTH = "auth"  # credentials or permissions (CR-1.6)
    NOT_FOUND = "not_found"  # it is not there, for good (CR-1.7)
    REJECTED = "rejected"  # a policy or business rule said no (CR-1.8)
    BUG = "bug"  # our code or our configuration (CR-1.9)
    IO = "io"  # local disks and files
    CAPACITY = "capacity"  # we ran out of something: queue, memory, disk, file descriptors


class Severity(StrEnum):
    """How loud to be about it. The words and their order are those of stdlib logging."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class Retryable(StrEnum):
    """Whether trying again can help."""

    YES = "yes"
    NO = "no"
    IF_IDEMPOTENT = "if_idempotent"  # only where running the stage twice does no harm (CR-1.4)

    def holds(self, *, idempotent: bool) -> bool:
        """Say whether a failure with this mark may be retried by a stage that is, or is not, idempotent."""
        return self is Retryable.YES or (self is Retryable.IF_IDEMPOTENT and idempotent)


class Asked(StrEnum):
    """What a stage may ask for by raising or returning a signal."""

    RETRY = "retry"
    SNOOZE = "snooze"
    CANCEL = "cancel"
    FAIL = "fail"


class Code(Struct, frozen=True, kw_only=True):
    """One stable failure code: data, never behaviour."""

    name: str
    category: Category
    retryable: Retryable
    severity: Severity
    line: str
    """A short line a person may be shown: no jargon, no internals."""
    hint: str
    """What an operator should do about it."""
    is_reachability: bool = False
    """True when it says that the dependency cannot be reached or cannot serve; such failures open a breaker by default."""
    max_attempts: int | None = None
    """How many attempts may fail with this code before it is given up, whatever is left of the policy's own limit."""

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
                rule="must say something",
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
    """What the exception said, cut to a bounded length and not yet redacted."""
    error_class: str
    """The dotted name of the exception's class."""
    lineage: tuple[str, ...] = ()
    """The dotted names of every class the exception (and the known failure inside it) is an instance of."""
    rule: str
    """Which rule matched, for `explain`."""
    canonical: str
    """The built-in code behind `code`; equal to it unless an application's own code set renamed it."""
    retry_after: float | None = None
    """Seconds the dependency told us to wait, already checked for sense."""
    http_status: int | None = None
    provider_code: str | None = None
    """What the dependency itself called the failure, such as `rate_limit_exceeded`."""
    request_id: str | None = None
    """The dependency's id for the request, for its support desk."""
    is_reachability: bool = False
    is_unknown: bool = False
    """True when no rule knew the exception, so that it counts as a bug by default."""
    max_attempts: int | None = None
    asked: Asked | None = None
    """What the stage itself asked for by a signal, which overrules the classifier."""
    line: str = ""
    hint: str = ""

    @property
    def proves_alive(self) -> bool:
        """Say whether the dependency answered at all, so that the failure speaks for it rather than against it."""
        return not self.is_reachability and (self.http_status is not None or self.provider_code is not None)
