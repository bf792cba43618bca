# SPDX-License-Identifier: Apache-2.0
"""The house rules that a machine can hold. That each check can fail is shown in tests/unit/repository/test_tidy_checks.py."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest

from tests.tidy import bounds, language, nouns, pages, sizes, statements, words
from tests.tidy.tree import ROOT, Source, sources

PACKAGE = sources("src")
TESTS = sources("tests", "apps")
EVERYTHING = sources("src", "tests", "tools", "bench", "apps")
# Reached from outside the package: documented for users, so nothing inside needs to import them.
PUBLIC_SUBMODULES = {"redrive.errors", "redrive.testing", "redrive.web"}
# Module -> what it waits for. An entry whose module has found a user must go.
NOT_YET_USED: dict[str, str] = {}

Check = Callable[[Source], list[str]]


def complaints(check: Check, files: list[Source]) -> list[str]:
    return [complaint for source in files for complaint in check(source)]


def assert_none(found: list[str]) -> None:
    if found:
        pytest.fail("\n".join(found), pytrace=False)


PACKAGE_CHECKS: list[Check] = [
    sizes.long_module,
    sizes.long_functions,
    sizes.deep_nesting,
    sizes.many_parameters,
    sizes.many_methods,
    bounds.wrong_direction,
    bounds.impure_core,
    bounds.stray_clocks,
    bounds.stray_prints,
    bounds.asserts,
    words.module_docstring,
    words.name_docstrings,
    words.vocabulary,
]


@pytest.mark.parametrize("check", PACKAGE_CHECKS, ids=lambda check: check.__name__)
def test_the_package_keeps_the_rule(check: Check) -> None:
    assert PACKAGE, "no source files found: the check would pass by looking at nothing"
    assert_none(complaints(check, PACKAGE))


def test_no_folder_holds_more_modules_than_a_reader_takes_in() -> None:
    assert_none(sizes.full_folders([source for source in EVERYTHING if "/tests/" not in f"/{source.path}"]))


def test_no_folder_holds_more_tests_than_a_reader_takes_in() -> None:
    tests = [source for source in TESTS if "/test_" in source.path]

    assert tests
    assert_none(sizes.full_folders(tests, sizes.TEST_FOLDER_MAX))


def test_unit_tests_mirror_the_package() -> None:
    assert_none(sizes.unmirrored(TESTS, PACKAGE))


def test_every_file_starts_with_its_licence() -> None:
    assert_none(complaints(words.licence_line, EVERYTHING))


def test_unfinished_marks_have_an_owner() -> None:
    assert_none(complaints(words.unowned_todos, EVERYTHING))


def test_suppressions_in_the_package_name_rule_and_reason() -> None:
    assert_none(
        [bad for source in PACKAGE for bad in words.unexplained_suppressions(source, with_reason=True)]
    )


def test_suppressions_elsewhere_name_their_rule() -> None:
    assert_none(
        [bad for source in EVERYTHING for bad in words.unexplained_suppressions(source, with_reason=False)]
    )


def test_the_core_has_no_type_suppressions() -> None:
    core = [source for source in PACKAGE if bounds.layer_of(source.module) == "core"]

    assert core
    assert_none(complaints(words.type_ignores, core))


def test_every_module_is_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries = {target.partition(":")[0] for target in project["scripts"].values()}

    assert_none(bounds.unreferenced(PACKAGE, entries | PUBLIC_SUBMODULES | set(NOT_YET_USED)))


def test_a_module_that_waits_for_its_user_is_listed_only_until_it_has_one() -> None:
    unused = "\n".join(bounds.unreferenced(PACKAGE, ()))

    assert [name for name in NOT_YET_USED if f"nothing refers to {name}" not in unused] == []


def test_every_statement_of_a_store_is_run_and_stands_once() -> None:
    # A test, or the suite for stores, is no reason to keep a statement.
    callers = [
        source
        for source in sources("src", "apps")
        if not {"conformance", "tests"} & set(source.module.split("."))
    ]
    files = language.statements()

    assert statements.named(dict(files)["src/redrive/store/sqlite/jobs.sql"])
    assert_none(statements.uncalled(files, callers) + statements.doubled(files))


def test_error_codes_are_unique() -> None:
    errors = [source for source in PACKAGE if bounds.layer_of(source.module) == "errors"]

    assert errors
    assert_none(words.error_codes(*errors))


def test_test_files_are_short_enough_to_read() -> None:
    assert_none([bad for source in TESTS for bad in sizes.long_module(source, sizes.TEST_FILE_MAX)])


def test_tests_skip_nothing_and_never_sleep() -> None:
    assert_none(complaints(words.skips_and_sleeps, TESTS))


def test_what_is_written_uses_no_private_words() -> None:
    found = complaints(language.private_words, language.written())
    pages_and_statements = [*language.statements(), *language.pages_of_applications()]
    found += [
        line for path, text in pages_and_statements for line in language.private_words_in_page(path, text)
    ]

    assert_none(found)


def test_the_package_names_its_own_modules_as_they_are_called() -> None:
    assert_none([source.at(1, bad) for source in PACKAGE for bad in pages.unknown_modules(source.text, ROOT)])


def test_every_table_is_in_the_glossary() -> None:
    glossary = language.Glossary.read((ROOT / language.GLOSSARY).read_text(encoding="utf-8"))
    schema = (ROOT / "src/redrive/store/sqlite/schema.sql").read_text(encoding="utf-8")

    assert glossary.words
    assert_none(language.unexplained_tables(schema, glossary))


def test_public_classes_are_called_by_words_of_the_glossary_or_plain_nouns() -> None:
    glossary = language.Glossary.read((ROOT / language.GLOSSARY).read_text(encoding="utf-8"))
    known = nouns.plain_nouns()

    assert_none([line for source in PACKAGE for line in language.unexplained_nouns(source, glossary, known)])


def test_every_ignored_rule_has_its_reason() -> None:
    assert_none(words.unexplained_rules((ROOT / "pyproject.toml").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", ["run.txt", "dev.txt"])
def test_pinned_files_name_no_host(name: str) -> None:
    assert_none(words.hosts_in(ROOT / "requirements" / name))
