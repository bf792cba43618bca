# SPDX-License-Identifier: Apache-2.0
"""The root of the error tree, and the errors that any part of redrive may raise.

It imports nothing from redrive, so that everything else may import it.
"""

from __future__ import annotations

from typing import ClassVar, Final

SHOWN_MAX: Final = 120

# The class of an error is stored with its failure, so it must not depend on which file of the package holds it.
_HOME: Final = "redrive.errors"


def short_repr(value: object) -> str:
    """Return `repr(value)`, cut to a length that fits in a message, even when `repr` itself raises."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the error being reported.
        text = f"<{type(value).__name__} whose repr fails>"
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."


def _rebuild(cls: type[RedriveError], args: tuple[object, ...], state: dict[str, object]) -> RedriveError:
    error = cls.__new__(cls, *args)
    error.args = args  # OSError, and so TimeoutError, leaves this to the constructor that is not called here.
    error.__dict__.update(state)
    return error


class RedriveError(Exception):
    """The base class of every error that redrive itself raises."""

    __module__ = _HOME
    code: ClassVar[str] = "redrive"
    hint: str

    def __init_subclass__(cls, **options: object) -> None:
        """Set the public module name of the errors of this package; classes derived elsewhere keep their own."""
        super().__init_subclass__(**options)
        if str(cls.__module__).startswith(f"{_HOME}."):  # A class made by type() may have no module at all.
            cls.__module__ = _HOME

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from state, because the keyword-only constructors cannot be called with `args`."""
        return _rebuild, (type(self), self.args, dict(self.__dict__))


class ConfigurationError(RedriveError, ValueError):
    """An argument or setting is invalid; the message has the field, the rule, the value and the fix."""

    code = "configuration"

    def __init__(self, *, field: str, value: object, rule: str, fix: str) -> None:
        self.field = field
        self.got = short_repr(value)
        self.rule = rule
        self.fix = fix
        super().__init__(f"{field} {rule}, got {self.got}. {fix}", hint=fix)


class UnknownNameError(ConfigurationError, LookupError):
    """There is no pipeline, stage, breaker, schedule, code or group with this name in the database."""

    code = "unknown-name"


class MissingExtraError(ConfigurationError, ImportError):
    """What was asked for needs a library that is not installed; an extra of redrive brings it."""

    code = "missing-extra"

    def __init__(self, *, field: str, library: str, extra: str) -> None:
        self.library = library
        self.extra = extra
        fix = f"Install it: pip install 'redrive[{extra}]'."
        super().__init__(field=field, value=None, rule=f"needs {library}", fix=fix)
        self.args = (f"{field} needs {library}, which is not installed",)


class SerializationError(RedriveError, ValueError):
    """A value cannot become JSON, or JSON does not fit its type.

    In a batch, `index` is the position of the value and `stored` has the ids of the jobs stored before it.
    """

    code = "serialization"
    index: int | None = None
    stored: tuple[int, ...] = ()

    def __init__(self, *, where: str, kind: str, problem: str) -> None:
        self.where = where
        self.kind = kind
        self.problem = problem
        hint = "Correct the value, or the annotation with its type."
        super().__init__(f"{where}: {kind} does not fit: {problem}", hint=hint)
