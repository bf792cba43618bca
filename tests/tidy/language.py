# SPDX-License-Identifier: Apache-2.0
"""Language: words the project does without, and the glossary that has the words it uses.

`python -m tests.tidy.language` counts where such words still stand, `python -m tests.tidy.language twin` lists one of them.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO

from tests.tidy.tree import ROOT, Source, classes, functions, is_declared, is_public, sources

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class Private:
    """A word that only we would understand, and the word to use instead."""

    word: str
    pattern: str
    instead: str
    where: str = "everywhere"
    """`everywhere`, `names` (of modules, classes and functions) or `docstrings` (how one begins)."""

    @property
    def expression(self) -> str:
        # An underscore parts words, a letter does not: `timestamp` has no stamp in it.
        start = r"^" if self.where == "docstrings" else r"(?<![a-z])"
        return rf"{start}(?:{self.pattern})(?![a-z])"

    def is_in(self, text: str) -> bool:
        return re.search(self.expression, text, re.IGNORECASE) is not None


PRIVATE = [
    Private("campaign", r"campaigns?", "replay"),
    Private("twin", r"twins?", "duplicate"),
    Private("crowd", r"crowds?", "uniform batch"),
    Private("stamp", r"stamp(s|ed|ing)?", "mark for a replay's letters, change counter for the store"),
    Private("let go", r"let(s|ting)?( \w+)? go", "release"),
    Private("go on", r"(go|goes|going|went|gone) on", "continue"),
    Private("speak of", r"(speaks?|speaking|spoke) (of|for|about)", "match, be about"),
    Private("tell", r"tells?|told|telling|teller", "report, return, show"),
    Private("say", r"says?|said", "return, report, describe", "docstrings"),
    Private("say whether", r"says? whether", "return whether"),
    Private("trouble", r"troubles?", "failure, problem"),
    Private("story", r"story|stories", "history, details"),
    Private("in vain", r"in vain", "ignored"),
    Private("desk", r"desks?", "the noun it serves"),
    Private("heart", r"heart", "heartbeat"),
    Private("hands", r"hands", "thread pool, or leased"),
    Private("onward", r"onward", "continue in place"),
    Private("outlook", r"outlook", "preview"),
    Private("oversight", r"oversight", "audit"),
    Private("kin", r"kin", "prefix index"),
    Private("mend", r"mend(s|ed|ing)?", "edit, fix"),
    Private("goodbye", r"goodbye", "release of its leases"),
    Private("heal", r"heal(s|ed|ing)?", "retryable, succeed later"),
    Private("cure", r"cur(e|es|ed|ing|able)", "fix, succeed"),
    Private("all the same", r"all the same", "anyway"),
    Private("take back", r"(take|takes|took|taken|taking)( it| that| this| them)? back", "undo"),
    Private("lead nowhere", r"lead(s|ing)? nowhere|led nowhere", "closed, broken"),
    Private("apart", r"apart", "process pool, isolated", "names"),
    Private("means", r"means", "parts", "names"),
    Private("shown", r"shown", "text, escaped", "names"),
    Private("bare", r"bare", "unquoted", "names"),
    Private("alike", r"alike", "uniform", "names"),
    Private("ahead", r"ahead", "prefetch", "names"),
    Private("near", r"near", "suggest", "names"),
    Private("judge", r"judge[sd]?|judging", "triage, decide", "names"),
]

# (word, file or folder) -> why the word may stand there.
ALLOWED: dict[tuple[str, str], str] = {
    ("campaign", "CHANGELOG.md"): "it lists what was renamed",
    ("twin", "CHANGELOG.md"): "it lists what was renamed",
    ("tell", "CHANGELOG.md"): "it lists what was renamed",
    ("campaign", "src/redrive/store/sqlite/migration_2.sql"): "it renames the table of that name",
    ("stamp", "src/redrive/store/sqlite/migration_2.sql"): "it renames the status of that name",
    ("tell", "src/redrive/store/sqlite/migration_2.sql"): "it renames the reason told_delay",
    ("tell", "src/redrive/ops/letters/imports.py"): "it reads the reason told_delay of old exports",
    ("outlook", "src/redrive/redaction/formats/shapes.py"): "the address of a mail service",
    ("heal", "src/redrive/core/budget.py"): "a rule of runs is described with it",
    ("heal", "docs/reference/api.md"): "it quotes core/budget.py",
    ("heal", "src/redrive/rules/"): "comments about answers of servers, and a variable",
    ("take back", "src/redrive/rules/imap_pop.py"): "another client has the mailbox",
    ("trouble", "apps/criticizer/codes.py"): "LOCAL_TROUBLE is a code of stored letters",
    ("bare", "bench/"): "a contender that uses the library alone",
}


def texts_of(source: Source) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind (`names`, `docstrings` or `everywhere`) and words of what somebody named or wrote in a file."""
    yield 1, "names", _spaced(source.module.rpartition(".")[2])
    for node in (*classes(source), *functions(source)):
        yield node.lineno, "names", _spaced(node.name)
    yield from ((line, "docstrings", text) for line, text in _docstrings(source).items())
    for token in tokenize.generate_tokens(StringIO(source.text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], "everywhere", _spaced(token.string)
        elif token.type in {tokenize.COMMENT, tokenize.STRING}:
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, "everywhere", line


def _docstrings(source: Source) -> dict[int, str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.body[0].lineno: text
        for node in source.nodes
        if isinstance(node, documented) and (text := ast.get_docstring(node)) is not None
    }


def _spaced(name: str) -> str:
    return _CAMEL.sub(" ", name).replace("_", " ")


def private_words(source: Source, words: Iterable[Private] = PRIVATE) -> list[str]:
    """Complain about each private word once per line."""
    found: dict[tuple[int, str], str] = {}
    listed = list(words)
    # Nearly every text has none of them, and one search shows it.
    any_of_them = re.compile("|".join(private.expression for private in listed) or r"(?!)", re.IGNORECASE)
    for line, kind, text in texts_of(source):
        if not any_of_them.search(text):
            continue
        for private in listed:
            if private.where in {kind, "everywhere"} and private.is_in(text):
                found[line, private.word] = source.at(line, f"{private.word!r}: use {private.instead}")
    return [text for (_, word), text in sorted(found.items()) if not _is_allowed(word, source.path)]


def private_words_in_page(path: str, text: str, words: Iterable[Private] = PRIVATE) -> list[str]:
    """The same for SQL and Markdown: all of it is text."""
    listed = [private for private in words if private.where == "everywhere"]
    return [
        f"{path}:{number}: {private.word!r}: use {private.instead}"
        for number, line in enumerate(text.splitlines(), 1)
        for private in listed
        if private.is_in(line) and not _is_allowed(private.word, path)
    ]


def _is_allowed(word: str, path: str) -> bool:
    return any(word == one and path.startswith(place) for one, place in ALLOWED)


def written() -> list[Source]:
    """Return the Python files of the project that are no tests."""
    found = sources("src", "tools", "bench", "apps")
    return [source for source in found if "tests" not in source.path.split("/")]


def pages_of_applications() -> list[tuple[str, str]]:
    """Return every page beside an application with its text; the other pages are checked with the documentation."""
    paths = sorted((ROOT / "apps").rglob("*.md"))
    return [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def statements() -> list[tuple[str, str]]:
    """Return every SQL file of the package with its text."""
    paths = sorted((ROOT / "src").rglob("*.sql"))
    return [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


# Glossary

GLOSSARY = "docs/concepts/glossary.md"
_ROW = re.compile(
    r"^\| \*\*(?P<word>[^*|]+)\*\* \| (?P<meaning>[^|]+)\|(?P<stored>[^|]*)\|(?P<command>[^|]*)\|$",
    re.MULTILINE,
)
_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Glossary:
    """The rows of the glossary: its words, those in italics too, and the tables its rows name."""

    words: frozenset[str]
    tables: frozenset[str]

    @classmethod
    def read(cls, page: str) -> Glossary:
        rows = list(_ROW.finditer(page))
        explained = {word for row in rows for word in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", row["meaning"])}
        return cls(
            frozenset({row["word"].lower() for row in rows} | explained),
            frozenset(name for row in rows for name in re.findall(r"`(\w+)", row["stored"])),
        )


def unexplained_tables(schema: str, glossary: Glossary) -> list[str]:
    """Every table of the store stands in a row of the glossary."""
    return [
        f"{GLOSSARY}: no row names the table {name}"
        for name in _TABLE.findall(schema)
        if name not in glossary.tables
    ]


def unexplained_nouns(source: Source, glossary: Glossary, plain: Iterable[str]) -> list[str]:
    """A public class is called by a word of the glossary, or by a plain technical word that is listed."""
    known = {*glossary.words, *plain}
    return [
        source.at(
            node, f"{node.name}: {noun!r} is neither in {GLOSSARY} nor a plain technical word we listed"
        )
        for node in classes(source)
        if is_public(node.name)
        and not is_declared(source, node)
        and not _is_known(node.name, known)
        and (noun := _spaced(node.name).split()[-1])
    ]


def _is_known(name: str, known: set[str]) -> bool:
    words = _spaced(name).lower().split()
    ends = (" ".join(words[start:]) for start in range(len(words)))
    return any(
        form in known for end in ends for form in (end, end.removesuffix("s"), re.sub("ies$", "y", end))
    )


def main(arguments: list[str]) -> int:
    """Print how often each private word stands in the project, and where those that are named do."""
    words = [private for private in PRIVATE if not arguments or private.word in arguments]
    found = [line for source in written() for line in private_words(source, words)]
    pages = [*statements(), *pages_of_applications()]
    found += [line for path, text in pages for line in private_words_in_page(path, text, words)]
    counts = [f"{sum(f': {one.word!r}: ' in line for line in found):5} {one.word}" for one in words]
    sys.stdout.write("\n".join([*(found if arguments else []), *counts]) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
