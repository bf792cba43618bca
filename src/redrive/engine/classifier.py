# SPDX-License-Identifier: Apache-2.0
"""The classifier of a program: user rules before built-in ones, cached per exception type.

`classify(exc)` is the public function. Around `core.classify`, which is pure, it finds the rules, reads the wall clock for headers
that name an instant, and warns once for each exception type without a rule.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from msgspec.structs import replace

from redrive import rules as builtin_rules
from redrive.core import classify as core
from redrive.core.arguments import instance, number
from redrive.core.codeset import CodeSet
from redrive.core.failure import Code, Failure
from redrive.core.taxonomy import CODES, code_named
from redrive.core.verdict import Verdict
from redrive.engine.runtime import CURRENT
from redrive.errors import ConfigurationError

E = TypeVar("E", bound=BaseException)

logger = logging.getLogger("redrive.classify")

Answer = str | Code | Verdict | None
"""What a user's rule may return: the name of a canonical code, a `Code`, a `Verdict`, or None to let the next rule try."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[E]):
    """A user's rule: what exceptions of a class, or of the class with a dotted name, mean.

    `means` is a code, the name of one, or a function of the exception that returns either, a `Verdict`, or None to pass.
    A dotted name spares the import: `Rule("stripe.error.CardError", "REJECTED_POLICY")`.
    """

    match: type[E] | str
    means: str | Code | Callable[[E], Answer]
    name: str = ""

    def __post_init__(self) -> None:
        is_class = isinstance(self.match, type) and issubclass(self.match, BaseException)
        if not is_class and not (isinstance(self.match, str) and self.match):
            raise ConfigurationError(
                field="Rule.match",
                value=self.match,
                rule="must be an exception class or its dotted name",
                fix='Write Rule(MyError, ...) or Rule("package.module.MyError", ...).',
            )
        if isinstance(self.means, str):
            code_named(self.means)
        elif not isinstance(self.means, Code) and not callable(self.means):
            raise ConfigurationError(
                field="Rule.means",
                value=self.means,
                rule="must be a code, the name of a code, or a function of the exception",
                fix=f"Name one of {', '.join(list(CODES)[:4])}, ...",
            )

    def applies_to(self, kind: type[BaseException]) -> bool:
        """Return whether this rule is for exceptions of this type."""
        if isinstance(self.match, str):
            return any(core.class_name(cls) == self.match for cls in kind.__mro__)
        return issubclass(kind, self.match)

    def read(self, exc: BaseException, _now: float) -> Verdict | Code | None:
        """Apply the rule to an exception; a rule that raises or returns something invalid is a ConfigurationError."""
        answer = self._answer(exc)
        if answer is None or isinstance(answer, Code):
            return answer
        verdict = answer if isinstance(answer, Verdict) else Verdict(code=cast("Code", answer))
        return replace(
            verdict, code=self._code(verdict.code), retry_after=self._retry_after(verdict.retry_after)
        )

    @property
    def label(self) -> str:
        """The name of this rule in explanations and errors."""
        own = self.name or getattr(self.means, "__qualname__", "")
        target = self.match if isinstance(self.match, str) else core.class_name(self.match)
        return f"rule {own} for {target}" if own else f"rule for {target}"

    def _answer(self, exc: BaseException) -> Answer:
        if isinstance(self.means, str | Code):
            return self.means
        try:
            return self.means(cast("E", exc))
        except Exception as raised:
            raise ConfigurationError(
                field=self.label,
                value=raised,
                rule="must not raise",
                fix=f"Return None if the rule does not apply; it was called with {type(exc).__name__}.",
            ) from raised

    def _code(self, answer: object) -> Code:
        if isinstance(answer, Code):
            return answer
        if isinstance(answer, str) and answer in CODES:
            return CODES[answer]
        raise ConfigurationError(
            field=self.label,
            value=answer,
            rule="must return a code, the name of one, a Verdict or None",
            fix=f"Known codes: {', '.join(CODES)}.",
        )

    def _retry_after(self, answer: object) -> float | None:
        if answer is None:
            return None
        delay = number(answer)
        if delay is None:
            raise ConfigurationError(
                field=self.label,
                value=answer,
                rule="must return retry_after in seconds",
                fix="Write Verdict(..., retry_after=12).",
            )
        return delay


class Classifier:
    """User rules over the built-in ones, with a cache of the rules for each exception type.

    Thread-safe: adding a rule replaces the cache, looking one up only fills it.
    """

    CACHE_MAX: Final = 10_000

    def __init__(self, rules: Iterable[Rule[Any]] = ()) -> None:
        self._lock = threading.Lock()
        self._found: tuple[tuple[Rule[Any], ...], dict[type[BaseException], core.TypeRules]] = ((), {})
        self._warned: set[str] = set()
        if not isinstance(rules, Iterable):
            raise ConfigurationError(
                field="Classifier.rules",
                value=rules,
                rule="must be a list of rules",
                fix="Classifier([Rule(...)]).",
            )
        for rule in reversed(tuple(rules)):
            self.add(rule)

    def add(self, rule: Rule[Any]) -> None:
        """Put a rule before all others."""
        instance("rule", rule, Rule, fix="Write add_rule(Rule(MyError, ...)).")
        with self._lock:
            # Rules and cache change together, so that no entry of the old rules survives.
            self._found = ((rule, *self._found[0]), {})

    def classify(
        self,
        exc: BaseException,
        *,
        idempotent: bool = False,
        codes: CodeSet | None = None,
        stage: str | None = None,
    ) -> Failure:
        """Classify this exception; see `redrive.classify`."""
        if not isinstance(exc, BaseException):
            raise ConfigurationError(
                field="exc",
                value=exc,
                rule="must be an exception",
                fix="Pass the exception itself, as caught by `except`.",
            )
        failure = core.classify(exc, self._lookup, CURRENT.get().clock.wall(), idempotent=idempotent)
        if failure.is_unknown:
            self._warn(failure)
        return failure if codes is None else codes.translate(failure, stage=stage, idempotent=idempotent)

    def _lookup(self, kind: type[BaseException]) -> core.TypeRules:
        rules, cache = self._found
        known = cache.get(kind)
        if known is None:
            own = tuple(core.FoundRule(rule.label, rule.read) for rule in rules if rule.applies_to(kind))
            known = core.TypeRules(own + builtin_rules.find(kind), core.lineage_of(kind))
            if len(cache) < self.CACHE_MAX:
                cache[kind] = known
        return known

    def _warn(self, failure: Failure) -> None:
        # If the exception is a group, the first class of the lineage is that of the member without a rule.
        kind = failure.lineage[0]
        if kind in self._warned or len(self._warned) >= self.CACHE_MAX:
            return
        self._warned.add(kind)
        module, _, name = kind.rpartition(".")
        if "<locals>" not in kind and not hasattr(sys.modules.get(module or "builtins"), name):
            # Made at run time, perhaps of a value, which no log may have.
            return
        logger.warning(
            "no rule for %s: it counts as a bug and is not retried; if a retry can help, add redrive.Rule(%s, ...)",
            kind,
            kind.rpartition(".")[2],
        )


DEFAULT: Final = Classifier()


def classify(
    exc: BaseException, *, idempotent: bool = False, codes: CodeSet | None = None, stage: str | None = None
) -> Failure:
    """Classify an exception: code, category, whether a retry can help, and the facts from the dependency.

    User rules (`add_rule`) come first, then the built-in ones, then a safe default: an unknown exception is a bug and is not
    retried. With `idempotent` the failed operation may run twice, which makes conflicts retryable. `codes` translates the result
    to an application's own codes, which may depend on `stage`.
    """
    return DEFAULT.classify(exc, idempotent=idempotent, codes=codes, stage=stage)


def add_rule(rule: Rule[Any]) -> None:
    """Add a rule before all others, for `classify` and for every guard and stage without a classifier of its own."""
    DEFAULT.add(rule)
