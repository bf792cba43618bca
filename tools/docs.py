# SPDX-License-Identifier: Apache-2.0
"""Writes the pages under docs/ that are made from the code: `python -m tools.docs`, or `--check` to compare only.

A generated page is never edited by hand: its first line says so. The prose of the pages is in this file, beside the
facts it explains; everything that can drift (codes, statuses, moves, names) is read from the code.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from redrive import errors
from redrive.core import lifecycle
from redrive.core.failure import Category, Code, Retryable
from redrive.core.http import code_for_status
from redrive.core.taxonomy import CODES
from tools.reference import reference_page

ROOT: Final = Path(__file__).resolve().parent.parent
_NOTE: Final = "<!-- Made from the code by `make docs`; edit the code or tools/docs.py instead. -->"

_CATEGORIES: Final[dict[Category, str]] = {
    Category.NETWORK: "The dependency could not be reached, or a gateway before it failed.",
    Category.RATE_LIMIT: "The dependency asks us to slow down, or a quota is spent.",
    Category.UPSTREAM: "The dependency answered that it failed itself.",
    Category.CONFLICT: "A write raced with another one.",
    Category.VALIDATION: "What was sent or received has the wrong form.",
    Category.AUTH: "Credentials or permissions are wrong.",
    Category.NOT_FOUND: "What was asked for is not there, for good.",
    Category.REJECTED: "A policy, a business rule or the stage itself rejected it.",
    Category.BUG: "The program or its configuration is wrong.",
    Category.IO: "A local disk or file failed.",
    Category.CAPACITY: "Something ran out: queue, memory, disk, file descriptors.",
}
_RETRY_WORDS: Final = {
    Retryable.YES: "yes",
    Retryable.NO: "no",
    Retryable.IF_IDEMPOTENT: "if the stage is idempotent",
}

_FAILURES_INTRO: Final = """\
# Failures

Every exception that a stage raises is classified before anything is decided about it.
`redrive.classify(exc)` returns the same failure that the engine acts on.
A code is the kind of failure; it is stored, counted and used in alerts, so a released code is never renamed.
An application may map these codes to its own with a `CodeSet`.
Retry behaviour then comes from the built-in code, unless the application's own code sets it.

## How to read the tables

- **Retried**: whether another attempt can succeed.
  How often, and after which delay, is decided by the policy: attempts, backoff, and a delay that the dependency asks for.
  "If the stage is idempotent" means only if the stage is declared `idempotent=True`.
- **Severity** uses the levels of Python's logging; `critical` is meant to alert a person at once.
- **Breaker**: whether the failure means that the dependency cannot be reached.
  By default such failures count towards opening a breaker.
  A response with a 4xx status never counts: it proves that the dependency is alive.
- **Shown** is a line for any reader: no jargon, no internals.
- **What to do** is for the operator who finds the dead letter.

A failure that is not retried, or is out of attempts, becomes a dead letter.
After the cause is repaired, the letter is replayed from the stage that failed.

An unknown exception counts as a bug: its code is `BUG_UNKNOWN`, it is not retried, and it is logged once per exception type.
Add your own rule for it: `redrive.add_rule(redrive.Rule(MyError, "NETWORK_ERROR"))`.
"""

_STATUSES_INTRO: Final = """\
## HTTP statuses

The code of a status is the same for every client library.
A more specific error in the provider's response body wins, such as a spent quota in a 429.
A 403 with Retry-After, or with no requests left in a rate limit, is `RATE_LIMITED`.
"""

_LIFECYCLE_INTRO: Final = """\
# Lifecycle

The states of jobs and dead letters change only as these tables have it.
An operator's act leaves a letter alone that it cannot move, and reports why.
A statement of the store moves a job only from the states given here.
The diagrams and tables are made from `redrive.core.lifecycle`.
"""

_API_INTRO: Final = """\
# Names of the package

The public names of `redrive`, with every signature and every member.
A name that is not listed here, or in the reference of a submodule, may change without notice.
Durations are `timedelta` or seconds; instants are aware `datetime`s.
"""

_ERRORS_INTRO: Final = """\
# Errors

Everything redrive raises is a `RedriveError`, so one `except` clause catches it all.
Each error has its facts as attributes, a stable `code`, and a `hint` with the next step; all survive pickling and copying.
"""


def _row(cells: Iterable[str]) -> str:
    """Return one table row; a bar inside a cell would end it early."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([_row(heads), "|" + "---|" * len(heads), *(_row(row) for row in rows)]) + "\n"


def failures_page() -> str:
    """Return docs/failures.md: what each code means, and which HTTP status means which code."""
    parts = [_FAILURES_INTRO]
    for category, meaning in _CATEGORIES.items():
        codes = [code for code in CODES.values() if code.category is category]
        heads = ("Code", "Retried", "Severity", "Breaker", "Shown", "What to do")
        parts.append(
            f"## {category.value}\n\n{meaning}\n\n" + _table(heads, (_code_row(code) for code in codes))
        )
    parts.append(_STATUSES_INTRO + "\n" + _status_table())
    return "\n".join(parts)


def _code_row(code: Code) -> tuple[str, ...]:
    retried = _RETRY_WORDS[code.retryable]
    if code.max_attempts is not None:
        retried += f", {code.max_attempts} attempts at most"
    counts = "counts" if code.is_reachability else "-"
    return f"`{code.name}`", retried, code.severity.value, counts, code.line, code.hint


def _status_table() -> str:
    # 418 and 599 have no meaning of their own, so they answer with what any other status of their hundred means.
    rest = {4: code_for_status(418), 5: code_for_status(599)}
    rows: dict[str, list[int]] = {}
    for status in range(400, 600):
        code = code_for_status(status)
        if code is not rest[status // 100]:
            rows.setdefault(code.name, []).append(status)
    named = [(", ".join(map(str, found)), name) for name, found in rows.items()]
    every = [*named, *((f"any other {first}xx", code.name) for first, code in rest.items())]
    return _table(
        ("Status", "Code", "Retried"),
        ((statuses, f"`{name}`", _RETRY_WORDS[CODES[name].retryable]) for statuses, name in every),
    )


def lifecycle_page() -> str:
    """Return docs/concepts/lifecycle.md: the moves of jobs and dead letters, drawn and listed."""
    parts = [_LIFECYCLE_INTRO]
    for title, moves in (("Jobs", lifecycle.JOB_MOVES), ("Dead letters", lifecycle.LETTER_MOVES)):
        drawn = "\n".join(f"    {move.source or '[*]'} --> {move.target}: {move.verb}" for move in moves)
        listed = _table(
            ("From", "Verb", "To", "When"),
            ((str(move.source or "(new)"), f"`{move.verb}`", str(move.target), move.why) for move in moves),
        )
        parts.append(f"## {title}\n\n```mermaid\nstateDiagram-v2\n{drawn}\n```\n\n{listed}")
    return "\n".join(parts)


def api_page() -> str:
    """Return docs/reference/api.md: each public name with its signature and members, in the groups of `redrive.__all__`."""
    return reference_page(_API_INTRO.rstrip())


def errors_page() -> str:
    """Return docs/reference/errors.md: each error with its code, its facts and its meaning."""
    kinds = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.RedriveError)
    ]
    parts = [_ERRORS_INTRO]
    for kind in sorted(kinds, key=lambda kind: (kind is not errors.RedriveError, kind.__name__)):
        also = [
            base.__name__
            for base in kind.__bases__
            if not issubclass(base, errors.RedriveError) and base is not Exception
        ]
        facts = [
            name
            for name, fact in inspect.signature(kind).parameters.items()
            if fact.kind is fact.KEYWORD_ONLY
        ]
        about = inspect.getdoc(kind) or ""
        lines = [
            f"## {kind.__name__}",
            "",
            f'<a id="{kind.code}"></a>',
            *about.splitlines(),
            "",
            f"- Code: `{kind.code}`",
        ]
        lines += [f"- Also a: `{name}`" for name in also]
        lines += [f"- Attributes: {', '.join(f'`{name}`' for name in facts)}"] if facts else []
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "docs/failures.md": failures_page,
    "docs/concepts/lifecycle.md": lifecycle_page,
    "docs/reference/api.md": api_page,
    "docs/reference/errors.md": errors_page,
}


def text_of(name: str) -> str:
    """Return what a page should hold now."""
    body = re.sub(r"\n{3,}", "\n\n", PAGES[name]())
    return f"{_NOTE}\n{body.rstrip()}\n"


def stale(root: Path) -> list[str]:
    """Return the differences between the pages as they stand and as they should be."""
    found: list[str] = []
    for name in PAGES:
        path = root / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = text_of(name)
        diff = difflib.unified_diff(
            before.splitlines(), after.splitlines(), name, f"{name} (from the code)", lineterm=""
        )
        found.extend(diff)
    return found


def write(root: Path) -> list[str]:
    """Write the pages that have changed, and return their names."""
    changed = [
        name
        for name in PAGES
        if not (root / name).exists() or (root / name).read_text("utf-8") != text_of(name)
    ]
    for name in changed:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text_of(name), encoding="utf-8")
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with `--check` return 1 and print the difference when one is stale."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description="Pages made from the code.")
    parser.add_argument(
        "--check", action="store_true", help="compare only; exit 1 with the difference when a page is stale"
    )
    if not parser.parse_args(arguments).check:
        for name in write(ROOT):
            print(f"wrote {name}")
        return 0
    difference = stale(ROOT)
    if difference:
        print("\n".join(difference))
        print("error: a page is stale; run `make docs`", file=sys.stderr)
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
