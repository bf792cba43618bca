# SPDX-License-Identifier: Apache-2.0
"""An application's own failure codes, as data over the canonical ones.

A `CodeSet` is an ordered list of own codes. Each lists what it takes: canonical codes, categories, HTTP statuses or exception
classes, for every stage or only for some. The first entry that takes a failure names it; `otherwise` names the rest. The set
changes names, limits and texts; the facts of the failure (status, retry-after delay, message) stay as they were classified.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Final

from msgspec.structs import replace

from redrive.core.arguments import did_you_mean, instance, is_http_status, whole
from redrive.core.classify import class_name
from redrive.core.failure import Category, Failure, Retryable, Severity, SignalKind
from redrive.core.taxonomy import CODES, code_named
from redrive.errors import ConfigurationError

SHOWN_MAX: Final = 10
Source = str | Category | int | range | type[BaseException]
"""What an own code takes: a canonical code or category by name, an HTTP status or a range of them, or an exception class."""


@dataclass(frozen=True, slots=True)
class OwnCode:
    """One code of an application: its name, what it takes, and what it changes.

    One match among `takes` is enough. A field that is None keeps the value of the canonical code. Several entries of a set may
    have the same name, for instance one retryable and one not.
    """

    name: str
    takes: Collection[Source] = ()
    _: KW_ONLY
    line: str | None = None
    hint: str | None = None
    category: Category | None = None
    retryable: bool | Retryable | None = None
    severity: Severity | None = None
    max_attempts: int | None = None
    """How many attempts may fail with this code before the job is given up; the first one counts."""
    stages: Collection[str] = ()
    """The stages this entry applies to; empty means all."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigurationError(
                field="OwnCode.name",
                value=self.name,
                rule="must be a non-empty string",
                fix='Write OwnCode("GW_5XX", [...]).',
            )
        for field in ("takes", "stages"):
            given = getattr(self, field)
            if isinstance(given, str) or not isinstance(given, Collection):
                raise ConfigurationError(
                    field=f"OwnCode({self.name}).{field}",
                    value=given,
                    rule="must be a list",
                    fix=f"Write {field}=[{given!r}].",
                )
        for source in self.takes:
            _check_source(self.name, source)
        if self.retryable is not None and not isinstance(self.retryable, bool | Retryable):
            raise ConfigurationError(
                field=f"OwnCode({self.name}).retryable",
                value=self.retryable,
                rule="must be True, False or a Retryable",
                fix="Leave it out to keep the value of the built-in code.",
            )
        if self.max_attempts is not None:
            field = f"OwnCode({self.name}).max_attempts"
            whole(field, self.max_attempts, minimum=1, fix="Leave it out for no limit of its own.")

    def takes_failure(self, failure: Failure, stage: str | None) -> bool:
        """Return whether this entry names a failure of this stage."""
        if self.stages and stage not in self.stages:
            return False
        return any(_matches(source, failure) for source in self.takes)

    def applied_to(self, failure: Failure, *, idempotent: bool) -> Failure:
        """Return the failure with this entry's name and values."""
        return replace(
            failure,
            code=self.name,
            category=self.category or failure.category,
            severity=self.severity or failure.severity,
            retryable=self._retryable(failure, idempotent=idempotent),
            max_attempts=self.max_attempts or failure.max_attempts,
            line=self.line or failure.line,
            hint=self.hint or failure.hint,
            rule=f"{failure.rule} -> {self.name}",
        )

    def _retryable(self, failure: Failure, *, idempotent: bool) -> bool:
        # A signal from the stage overrules any table.
        if self.retryable is None or failure.signal is not None:
            return failure.retryable
        if isinstance(self.retryable, Retryable):
            return self.retryable.holds(idempotent=idempotent)
        return self.retryable


@dataclass(frozen=True, slots=True)
class CodeSet:
    """An application's codes: entries in order of precedence, and the code for what none of them takes."""

    name: str
    codes: tuple[OwnCode, ...]
    otherwise: OwnCode

    def __init__(self, name: str, codes: Iterable[OwnCode], *, otherwise: OwnCode) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "codes", tuple(codes))
        object.__setattr__(self, "otherwise", otherwise)
        for entry in (*self.codes, otherwise):
            instance(f"CodeSet({name}).codes entry", entry, OwnCode, fix='Write OwnCode("NAME", [...]).')

    def __getitem__(self, name: str) -> OwnCode:
        """Return the first entry with this name; the error for an unknown one lists the names."""
        for entry in (*self.codes, self.otherwise):
            if entry.name == name:
                return entry
        raise ConfigurationError(
            field=f"code of {self.name}",
            value=name,
            rule="must be one of its codes",
            fix=did_you_mean(str(name), self.names) or f"Known: {', '.join(self.names[:SHOWN_MAX])}.",
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The codes' names, each once, in order."""
        return tuple(dict.fromkeys(entry.name for entry in (*self.codes, self.otherwise)))

    def for_code(self, code: str) -> OwnCode:
        """Return the entry for a code when nothing but the code is known, as of a stored letter or event.

        For a canonical code that is the first entry for any stage that takes it; for another code, the entry of that name. If
        there is none, it is `otherwise`.
        """
        known = CODES.get(code)
        if known is None:
            named = [entry for entry in self.codes if entry.name == code]
        else:
            sources = {code, known.category}
            named = [entry for entry in self.codes if not entry.stages and sources & set(entry.takes)]
        return named[0] if named else self.otherwise

    def category_of(self, name: str) -> Category | None:
        """Return the category that all entries of this name set; None when one of them sets none, or they differ."""
        given = {entry.category for entry in (*self.codes, self.otherwise) if entry.name == name}
        return given.pop() if len(given) == 1 else None

    def translate(self, failure: Failure, *, stage: str | None = None, idempotent: bool = False) -> Failure:
        """Return the failure under this application's own code."""
        if failure.signal is SignalKind.FAIL and failure.code in self.names:
            return self[failure.code].applied_to(failure, idempotent=idempotent)
        if failure.signal is SignalKind.FAIL and failure.code != failure.canonical:
            failure = replace(
                failure, rule=f"{failure.rule}, but {failure.code} is not a code of {self.name}"
            )
        taking = (entry for entry in self.codes if entry.takes_failure(failure, stage))
        return next(taking, self.otherwise).applied_to(failure, idempotent=idempotent)


def _check_source(name: str, source: Source) -> None:
    if isinstance(source, Category | range) or (
        isinstance(source, type) and issubclass(source, BaseException)
    ):
        return
    if isinstance(source, str):
        if source not in set(Category):
            code_named(source)
        return
    if not is_http_status(source):
        raise ConfigurationError(
            field=f"OwnCode({name}).takes",
            value=source,
            rule="must hold canonical codes, categories, HTTP statuses (100 to 599), ranges of them, or exception classes",
            fix="See docs/failures.md for the codes.",
        )


def _matches(source: Source, failure: Failure) -> bool:
    if isinstance(source, str):
        return source in (failure.canonical, failure.category)
    if isinstance(source, type):
        return class_name(source) in failure.lineage
    if isinstance(source, range):
        return failure.http_status is not None and failure.http_status in source
    return failure.http_status == source
