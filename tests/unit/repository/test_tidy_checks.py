# SPDX-License-Identifier: Apache-2.0
"""Each tidiness check is fed something untidy and must complain, and something tidy and must not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.tidy import bounds, language, sizes, statements, words
from tests.tidy.tree import Source

CORE = "src/redrive/core/sample.py"
ENGINE = "src/redrive/engine/sample.py"
TEST = "tests/unit/test_sample.py"
LONG = "def f():\n" + "    x = 1\n" * 60
DOCUMENTED = 'def f():\n    """' + "line\n" * 30 + '    """\n' + "    x = 1\n" * 40
NESTED = "def f():\n" + "".join("    " * depth + "if a:\n" for depth in range(1, 6)) + "    " * 6 + "pass\n"
ELIFS = "def f(a):\n    if a == 0:\n        pass\n" + "".join(
    f"    elif a == {n}:\n        pass\n" for n in range(1, 9)
)
METHODS = "class C:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(13))
SEVEN = "a, b, c, d, e, f, g"

Check = Callable[[Source], list[str]]
reasons = partial(words.unexplained_suppressions, with_reason=True)
rules = partial(words.unexplained_suppressions, with_reason=False)

UNTIDY: list[tuple[Check, str, str, str]] = [
    (sizes.long_module, CORE, "x = 1\n" * 501, "501 lines"),
    (sizes.long_functions, CORE, LONG, "f has 61 lines"),
    (sizes.deep_nesting, CORE, NESTED, "f nests 5 blocks deep"),
    (sizes.many_parameters, CORE, f"def f({SEVEN}): ...", "takes 7 parameters"),
    (sizes.many_parameters, CORE, "def f(a, b, c, d, e, f): ...", "takes 6 by position"),
    (sizes.many_parameters, CORE, f"class C:\n    def __init__(self, {SEVEN}): ...", "takes 7 by position"),
    (sizes.many_methods, CORE, METHODS, "C offers 13 methods"),
    (
        bounds.wrong_direction,
        CORE,
        "from redrive.engine import clock",
        "core may not import redrive.engine.clock",
    ),
    (bounds.wrong_direction, CORE, "from redrive import rules", "core may not import redrive.rules"),
    (bounds.wrong_direction, CORE, "import redrive", "core may not import redrive"),
    (bounds.wrong_direction, CORE, "from .. import engine", "core may not import redrive.engine"),
    (
        bounds.wrong_direction,
        CORE,
        "def f():\n    from redrive.cli import app",
        "core may not import redrive.cli.app",
    ),
    (
        bounds.wrong_direction,
        "src/redrive/rules/x.py",
        "import redrive.config",
        "rules may not import redrive.config",
    ),
    (bounds.wrong_direction, ENGINE, "from redrive.testing import FakeClock", "engine may not import"),
    (
        bounds.wrong_direction,
        "src/redrive/__init__.py",
        "from redrive.cli import app",
        "redrive may not import",
    ),
    (bounds.impure_core, CORE, "import logging", "may not import logging"),
    (bounds.impure_core, CORE, "from os import path", "may not import os.path"),
    (bounds.impure_core, CORE, "from concurrent.futures import Future", "may not import concurrent"),
    (bounds.impure_core, CORE, "open('x')", "may not call open"),
    (bounds.impure_core, CORE, "print('x')", "may not call print"),
    (bounds.impure_core, CORE, "datetime.now()", "may not call datetime.now"),
    (bounds.impure_core, CORE, "datetime.datetime.utcnow()", "may not call datetime.datetime.utcnow"),
    (bounds.impure_core, CORE, "async def f(): ...", "knows nothing of asyncio"),
    (bounds.stray_clocks, ENGINE, "time.monotonic()", "time.monotonic outside"),
    (bounds.stray_clocks, ENGINE, "wall = time.time", "time.time outside"),
    (bounds.stray_clocks, ENGINE, "random.uniform(0, 1)", "random.uniform outside"),
    (bounds.stray_clocks, ENGINE, "random.Random()", "random.Random outside"),
    (bounds.stray_clocks, ENGINE, "datetime.now(UTC)", "datetime.now outside"),
    (bounds.stray_clocks, ENGINE, "os.environ['HOME']", "os.environ outside"),
    (bounds.stray_clocks, "src/redrive/engine/clock.py", "os.getenv('HOME')", "os.getenv outside"),
    (bounds.stray_clocks, "src/redrive/config.py", "time.time()", "time.time outside"),
    (bounds.stray_clocks, ENGINE, "from time import monotonic", "from time import monotonic"),
    (bounds.stray_clocks, ENGINE, "from os import environ", "from os import environ"),
    (bounds.stray_prints, ENGINE, "print('x')", "print outside"),
    (bounds.asserts, ENGINE, "assert x", "assert is gone"),
    (words.licence_line, CORE, '"""No licence."""', "first line"),
    (words.licence_line, CORE, f"\n{words.SPDX}\n", "first line"),
    (words.module_docstring, CORE, "x = 1", "no docstring"),
    (words.module_docstring, CORE, '"""' + "line\n" * 9 + '"""', "has 9 lines"),
    (words.module_docstring, CORE, '"""Short."""\n' + "x = 1\n" * 100, "should also state"),
    (words.name_docstrings, CORE, "def f(): ...", "f has no docstring"),
    (words.name_docstrings, CORE, "class C: ...", "C has no docstring"),
    (words.name_docstrings, CORE, 'class C:\n    """C."""\n    def m(self): ...', "m has no docstring"),
    (words.vocabulary, CORE, "class JobManager: ...", "'manager'"),
    (words.vocabulary, CORE, "def parse_data(): ...", "'data'"),
    (words.vocabulary, CORE, "def _do_it(): ...", "'do'"),
    (words.vocabulary, CORE, "def handle(x): ...", "'handle' as a verb"),
    (words.vocabulary, CORE, "async def process_job(x): ...", "'process' as a verb"),
    (words.vocabulary, "src/redrive/core/utils.py", "", "'utils'"),
    (words.vocabulary, "src/redrive/core/qm.py", "", "says nothing"),
    (words.unowned_todos, CORE, "# TODO later", "TODO needs an owner"),
    (words.unowned_todos, CORE, "x = 1  # FIXME: soon", "FIXME needs an owner"),
    (reasons, CORE, "x = 1  # noqa", "must name its rule"),
    (reasons, CORE, "x = 1  # noqa: E501", "reason"),
    (reasons, CORE, "x = 1  # type: ignore[arg-type]", "reason"),
    (reasons, CORE, "x = 1  # type: ignore - because it is hard", "must name its rule"),
    (rules, TEST, "x = 1  # type: ignore", "must name its rule"),
    (rules, TEST, "x = 1  # pyright: ignore", "must name its rule"),
    (
        words.type_ignores,
        CORE,
        "x = 1  # type: ignore[arg-type] - the stub is wrong here",
        "no type suppressions",
    ),
    (words.skips_and_sleeps, TEST, "pytest.skip('x')", "pytest.skip"),
    (words.skips_and_sleeps, TEST, "@pytest.mark.xfail\ndef test(): ...", "pytest.mark.xfail"),
    (words.skips_and_sleeps, TEST, "pytestmark = pytest.mark.skipif(True)", "pytest.mark.skipif"),
    (words.skips_and_sleeps, TEST, "time.sleep(0.1)", "time.sleep"),
    (words.skips_and_sleeps, TEST, "async def f():\n    await asyncio.sleep(delay)", "asyncio.sleep"),
    (language.private_words, CORE, "def start_campaign(): ...", "'campaign': use replay"),
    (language.private_words, CORE, "class CampaignReport: ...", "'campaign': use replay"),
    (language.private_words, "src/redrive/core/desk.py", "", "'desk'"),
    (language.private_words, CORE, "x = twin_of(y)", "'twin': use duplicate"),
    (language.private_words, CORE, "# the letters are stamped here", "'stamp'"),
    (language.private_words, CORE, "log('its leases were let go')", "'let go': use release"),
    (language.private_words, CORE, 'f"""One line,\nthen it goes on."""', "'go on': use continue"),
    (language.private_words, CORE, 'def f():\n    """Say how long."""', "'say'"),
    (language.private_words, CORE, "def near(): ...", "'near': use suggest"),
    (language.private_words, CORE, "# it heals by itself", "'heal': use retryable"),
    (language.private_words, CORE, "log('the fix cured it')", "'cure': use fix"),
    (language.private_words, CORE, "# retried all the same", "'all the same': use anyway"),
    (language.private_words, CORE, "log('restore takes that back')", "'take back': use undo"),
    (
        words.error_codes,
        "src/redrive/errors/root.py",
        "class AError:\n    code = 'a'\nclass BError:\n    code = 'a'",
        "used twice",
    ),
    (words.error_codes, "src/redrive/errors/root.py", "class AError: ...", "no code of its own"),
    (words.error_codes, "src/redrive/errors/root.py", "class Trouble:\n    code = 'a'", "must end in Error"),
]

TIDY: list[tuple[Check, str, str]] = [
    (sizes.long_module, CORE, "x = 1\n" * 400),
    (sizes.long_functions, CORE, DOCUMENTED),
    (sizes.deep_nesting, CORE, ELIFS),
    (sizes.many_parameters, CORE, f"class C:\n    def __init__(self, *, {SEVEN}): ..."),
    (sizes.many_parameters, CORE, f"def stage(fn, *, {SEVEN}): ..."),
    (
        bounds.wrong_direction,
        CORE,
        "from redrive.core import http\nfrom redrive.errors import ConfigurationError",
    ),
    (bounds.wrong_direction, CORE, "from .failure import Code\nimport math"),
    (
        bounds.wrong_direction,
        "src/redrive/cli/app.py",
        "import redrive\nfrom redrive.ops.jobs import retry",
    ),
    (
        bounds.impure_core,
        CORE,
        "from urllib.parse import urlsplit\nfrom datetime import datetime\ndatetime.fromisoformat('x')",
    ),
    (bounds.impure_core, ENGINE, "import asyncio"),
    (bounds.stray_clocks, "src/redrive/engine/clock.py", "wall = time.time"),
    (bounds.stray_clocks, ENGINE, "random.Random(7)"),
    (bounds.stray_clocks, "src/redrive/config.py", "os.environ.get('REDRIVE_X')"),
    (bounds.stray_prints, "src/redrive/cli/app.py", "print('x')"),
    (words.licence_line, CORE, f"{words.SPDX}\n"),
    (words.licence_line, "tests/unit/__init__.py", ""),
    (words.module_docstring, CORE, '"""A tree.\n\n' + "    |-- leaf\n" * 20 + 'No more.\n"""'),
    (words.name_docstrings, CORE, "def _f(): ...\nclass _C:\n    def m(self): ..."),
    (words.name_docstrings, CORE, "@overload\ndef f(x: int) -> int: ..."),
    (
        words.vocabulary,
        CORE,
        "def metadata(): ...\ndef kill_process(): ...\ndef done(): ...\ndef __init__(self): ...",
    ),
    (language.private_words, CORE, "timestamp = 'between'  # what the rules say goes first"),
    (language.private_words, CORE, "near = 1  # names that are near"),
    (language.private_words, CORE, "x = 1  # health is secure, an accurate curve"),
    (words.unowned_todos, CORE, "# TODO(ada): say when\ns = 'TODO'"),
    (reasons, CORE, "x = 1  # noqa: BLE001 - a plug-in may raise anything"),
    (reasons, CORE, "x = 1  # type: ignore[arg-type] - the stub is wrong here"),
    (reasons, CORE, "s = '# noqa'"),
    (rules, TEST, "x = 1  # noqa: E501"),
    (words.skips_and_sleeps, TEST, "s = 'pytest.skip()'\nasync def f():\n    await asyncio.sleep(0)"),
    (
        words.error_codes,
        "src/redrive/errors/root.py",
        "class AError:\n    code: ClassVar[str] = 'a'\nclass BError:\n    code = 'b'",
    ),
]


def label(value: object) -> str | None:
    return getattr(getattr(value, "func", value), "__name__", None)


@pytest.mark.parametrize(("check", "path", "text", "words_in_it"), UNTIDY, ids=label)
def test_a_check_complains_about_what_is_untidy(check: Check, path: str, text: str, words_in_it: str) -> None:
    found = check(Source(path, text))

    assert any(words_in_it in complaint for complaint in found), found
    assert all(complaint.startswith(f"{path}:") for complaint in found)


@pytest.mark.parametrize(("check", "path", "text"), TIDY, ids=label)
def test_a_check_leaves_what_is_tidy_alone(check: Check, path: str, text: str) -> None:
    assert check(Source(path, text)) == []


def test_a_code_that_two_files_share_is_found_where_it_stands_the_second_time() -> None:
    first = Source("src/redrive/errors/root.py", "class AError:\n    code = 'a'")
    second = Source("src/redrive/errors/jobs.py", "class BError:\n    code = 'a'")

    found = words.error_codes(first, second)

    assert found == ["src/redrive/errors/jobs.py:1: the code 'a' is used twice, first by AError"]


def test_a_folder_with_too_many_modules_is_found_and_a_list_is_not() -> None:
    many = range(sizes.FOLDER_MAX + 1)
    files = [
        Source(f"{folder}/m{n}.py", "") for folder in ("src/redrive/core", "src/redrive/ops") for n in many
    ]

    found = sizes.full_folders([*files, Source("src/redrive/ops/__init__.py", "")])

    assert found == ["src/redrive/ops: 20 modules; 19 is the most, give it rooms"]
    assert sizes.full_folders(files, sizes.FOLDER_MAX + 1) == []


def test_a_folder_of_unit_tests_that_is_named_after_nothing_in_the_package_is_found() -> None:
    package = [Source(f"src/redrive/ops/{name}.py", "") for name in ("__init__", "audit")]
    folders = ("ops", "ops/audit", "repository", "ops/corners")
    tests = [Source(f"tests/unit/{folder}/test_one.py", "") for folder in folders]
    elsewhere = [Source("tests/unit/test_config.py", ""), Source("tests/e2e/cli/test_one.py", "")]

    found = sizes.unmirrored([*tests, *elsewhere], package)

    assert found == ["tests/unit/ops/corners: there is no src/redrive/ops/corners in the package"]


GLOSSARY = language.Glossary.read(
    "| Word | Meaning | Table or column | Command line |\n|---|---|---|---|\n"
    "| **job** | one payload; a second is a *duplicate* | `jobs`, `jobs.key` | `redrive job` |\n"
    "| **failure budget** | how much may fail | | |\n"
)


def test_a_table_without_a_row_in_the_glossary_is_found() -> None:
    schema = "CREATE TABLE jobs (\n    id INTEGER\n);\nCREATE TABLE crates (\n    id INTEGER\n);\n"

    found = language.unexplained_tables(schema, GLOSSARY)

    assert found == ["docs/concepts/glossary.md: no row names the table crates"]


def test_a_class_with_a_noun_that_is_nowhere_explained_is_found() -> None:
    known = "class Job: ...\nclass Jobs: ...\nclass JobState: ...\nclass Duplicate: ...\nclass FailureBudget: ...\n"
    source = Source(CORE, known + "class _Crate: ...\nclass Crate: ...\nclass JobCrate: ...\n")

    found = language.unexplained_nouns(source, GLOSSARY, {"state"})

    assert [line.partition(": ")[2].partition(":")[0] for line in found] == ["Crate", "JobCrate"]


def test_a_private_word_is_found_in_sql_and_allowed_where_a_reason_is_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "-- a row\nCREATE TABLE campaigns (\n    id INTEGER\n);\n"

    assert language.private_words_in_page("a.sql", text) == ["a.sql:2: 'campaign': use replay"]

    monkeypatch.setitem(language.ALLOWED, ("campaign", "a.sql"), "it was always called that")
    assert language.private_words_in_page("a.sql", text) == []


def test_a_statement_that_nothing_runs_is_found_and_one_whose_name_is_built_is_not() -> None:
    text = "-- name: job\nSELECT 1;\n\n-- name: count_by_key\nSELECT 2;\n\n-- part: page\nLIMIT 1\n\n-- name: lost\nSELECT 3;\n"
    caller = Source("src/redrive/ops/jobs.py", 'a = query("job")\nb = query(f"count_by_{c}")\nd = f"{c}"\n')

    found = statements.uncalled([("store/jobs.sql", text)], [caller])

    assert found == ["store/jobs.sql: nothing runs the statement lost"]


def test_a_statement_that_stands_twice_is_found_and_that_of_another_dialect_is_not() -> None:
    one = "-- name: job\nSELECT id -- its number\nFROM jobs;\n"
    same = "-- name: task\n-- Again.\nSELECT id FROM jobs;\n"

    found = statements.doubled(
        [("sqlite/jobs.sql", one), ("sqlite/more.sql", same), ("postgres/jobs.sql", same)]
    )

    assert found == ["sqlite/more.sql: task is the same statement as job"]


def test_the_list_of_private_words_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(language, "sources", lambda *folders: [Source(CORE, "twin = 1")])
    monkeypatch.setattr(language, "statements", list)
    monkeypatch.setattr(language, "pages_of_applications", list)

    assert language.main(["twin"]) == 1
    assert capsys.readouterr().out == f"{CORE}:1: 'twin': use duplicate\n    1 twin\n"


def test_a_module_nobody_refers_to_is_found() -> None:
    package = [
        Source("src/redrive/rules/__init__.py", 'TABLE = {"grpc": "grpc_errors"}'),
        Source("src/redrive/rules/grpc_errors.py", ""),
        Source("src/redrive/rules/lost.py", ""),
        Source("src/redrive/core/used.py", ""),
        Source("src/redrive/cli/job.py", ""),
        Source(
            "src/redrive/engine/run.py",
            'from redrive.core.used import f\nTREE = {"job": "redrive.cli.job:app"}',
        ),
    ]

    found = bounds.unreferenced(package, {"redrive.engine.run"})

    assert found == ["src/redrive/rules/lost.py:1: nothing refers to redrive.rules.lost"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['    "D105", # the language says it'], 0),
        (['    "D105",'], 1),
        (['    "D105", #'], 1),
        (['    "D105", # the language says it', '    "S101",'], 1),
    ],
)
def test_an_ignored_rule_without_a_reason_is_found(lines: list[str], expected: int) -> None:
    listed = "\n".join(["[tool.ruff.lint]", "ignore = [", *lines, "]", "[tool.other]", 'ignore = ["X"]'])

    assert len(words.unexplained_rules(listed)) == expected


def test_ignored_rules_side_by_side_are_found() -> None:
    assert words.unexplained_rules('[tool.ruff.lint.per-file-ignores]\n"tests/**" = ["D105", "S101"]') != []


@pytest.mark.parametrize("line", ["-i https://packages.example", "x @ file:///wheels/x.whl", "-f wheels"])
def test_a_host_in_a_pinned_file_is_found(tmp_path: Path, line: str) -> None:
    pinned = tmp_path / "run.txt"
    pinned.write_text(
        f"# made by make lock\nmsgspec==1.0\n    # via\n    #   -c requirements/run.txt\n{line}\n"
    )

    assert words.hosts_in(pinned) == [f"run.txt:5: {line}"]
