# SPDX-License-Identifier: Apache-2.0
"""The requirement table: what counts as proof, what is refused, and how the list of open rows may change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import requirements as tool
from tools.pytest_requirements import mistakes_in as mistakes_in_mark
from tools.requirements import Page, Result

PAGE = Page(("AA-1.1", "AA-1.2", "AA-2.1"), ("D-1",))


def passed(test: str, *ids: str) -> Result:
    return Result(test, ids, "passed")


def failed(test: str, *ids: str) -> Result:
    return Result(test, ids, "failed")


def test_the_page_of_this_repository_defines_each_row_once() -> None:
    page = tool.read_page(tool.ROOT)

    assert len(page.requirements) == len(set(page.requirements)) == 98
    assert [name for name in page.requirements if name.startswith("PX-11.")] == [
        f"PX-11.{n}" for n in range(1, 10)
    ]
    assert page.decisions == tuple(f"D-{n}" for n in range(1, 12))


def test_a_page_that_defines_an_id_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / tool.PAGE).write_text("| AA-1.1 | one |\n| AA-1.1 | again |\n")

    with pytest.raises(ValueError, match=r"AA-1\.1 more than once"):
        tool.read_page(tmp_path)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], set()),
        ([passed("t", "AA-1.1")], {"AA-1.1"}),
        ([passed("t", "AA-1.1", "AA-2.1")], {"AA-1.1", "AA-2.1"}),
        ([passed("t", "AA-1.1"), failed("u", "AA-1.1")], set()),
        ([Result("t", ("AA-1.1",), "skipped")], set()),
        ([Result("t", ("AA-1.1",), "not run")], set()),
    ],
)
def test_a_row_is_proved_by_passing_tests_only(results: list[Result], expected: set[str]) -> None:
    assert tool.proved(PAGE.requirements, tool.by_id(results)) == expected


def test_the_table_names_every_row_and_ends_with_the_count() -> None:
    lines = tool.lines_of(PAGE, tool.by_id([passed("t", "AA-1.1"), failed("u", "AA-1.2", "D-1")]))

    assert [line.split() for line in lines[:-1]] == [
        ["AA-1.1", "passed", "t"],
        ["AA-1.2", "failed", "u"],
        ["AA-2.1", "-", "no", "test"],
        ["D-1", "failed", "u"],
    ]
    assert lines[-1] == "1 of 3 requirements proved"


def test_unknown_ids_and_too_many_are_mistakes() -> None:
    crowded = Page(("AA-1.1", "AA-1.2", "AA-1.3", "AA-1.4"), ("D-1",))

    assert tool.mistakes_in(crowded, [passed("t", "AA-1.1", "AA-1.2", "AA-1.3", "D-1")]) == []
    assert tool.mistakes_in(crowded, [passed("t", *crowded.requirements)]) == [
        "t names 4 requirements; 3 is the most"
    ]
    assert tool.mistakes_in(crowded, [passed("t", "ZZ-9.9")]) == ["t names the unknown requirement ZZ-9.9"]


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (pytest.mark.req("AA-1.1", decision="D-1"), None),
        (pytest.mark.req(decision="D-1"), None),
        (pytest.mark.req(), "names no requirement"),
        (pytest.mark.req("AA-9.9"), "unknown requirement 'AA-9.9'"),
        (pytest.mark.req("AA-1.1", decision="D-9"), "unknown decision 'D-9'"),
        (pytest.mark.req("AA-1.1", because="D-1"), "unknown argument 'because'"),
        (pytest.mark.req("AA-1.1", "AA-1.2", "AA-2.1", "AA-1.1"), "names 4 requirements"),
    ],
)
def test_a_mark_is_checked(mark: pytest.MarkDecorator, words: str | None) -> None:
    found = mistakes_in_mark(mark.mark, PAGE)

    assert found == [] if words is None else any(words in mistake for mistake in found)


def test_the_open_list_must_name_exactly_what_is_not_proved() -> None:
    assert tool.compare(PAGE, {"AA-1.1"}, ["AA-1.2", "AA-2.1"], None) == []
    assert tool.compare(PAGE, {"AA-1.1"}, ["AA-1.1", "AA-1.2", "AA-2.1"], None) == [
        "AA-1.1 is proved: remove it from the list of open requirements"
    ]
    assert tool.compare(PAGE, {"AA-1.1"}, ["AA-1.2"], None) == [
        "AA-2.1 is not proved, and is not listed as open"
    ]
    assert "no requirement: remove it" in tool.compare(PAGE, set(), [*PAGE.requirements, "ZZ-1.1"], None)[0]
    assert "more than once" in tool.compare(PAGE, set(), [*PAGE.requirements, "AA-1.1"], None)[0]


def test_the_open_list_may_only_shrink() -> None:
    done = {"AA-1.1"}

    assert tool.compare(PAGE, done, ["AA-1.2", "AA-2.1"], ["AA-1.1", "AA-1.2", "AA-2.1"]) == []
    assert tool.compare(PAGE, done, ["AA-1.2", "AA-2.1"], ["AA-1.2"]) == [
        "AA-2.1 was not open before: the list may only shrink"
    ]


def test_the_open_list_is_compared_with_the_last_commit(tmp_path: Path) -> None:
    listed = tmp_path / "open.txt"
    listed.write_text("AA-1.1 # soon\n\n# a remark\nAA-1.2\n")

    assert tool.committed(listed) is None

    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "open.txt"], ["commit", "-qm", "list"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True)
    listed.write_text("AA-2.1\n")

    assert tool.committed(listed) == ["AA-1.1", "AA-1.2"]


TESTS = """
import pytest

@pytest.mark.req("AA-1.1")
def test_one():
    pass

@pytest.mark.req("AA-1.2")
def test_wrong():
    assert False

@pytest.mark.req("AA-1.2")
def test_later():
    pytest.skip("later")

@pytest.mark.req("AA-1.2")
def test_expected():
    pytest.xfail("known")

def test_unmarked():
    pass
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository of its own, with two rows, and tests that prove the first and not the second."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / tool.PAGE).write_text("| AA-1.1 | one |\n| AA-1.2 | two |\n")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["req: ids"]\n')
    (tmp_path / "tests/conftest.py").write_text(
        "from tools import pytest_requirements\ndef pytest_configure(config):\n    pytest_requirements.register(config)\n"
    )
    (tmp_path / "tests/test_one.py").write_text(TESTS)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(tool.__file__).parent.parent))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "2"]], ids=["one process", "two processes"])
def test_running_the_marked_tests_gives_their_results(repository: Path, workers: list[str]) -> None:
    results, status = tool.run_tests(["-q", *workers])

    assert status == 1
    assert results == [
        Result("tests/test_one.py::test_expected", ("AA-1.2",), "skipped"),
        Result("tests/test_one.py::test_later", ("AA-1.2",), "skipped"),
        Result("tests/test_one.py::test_one", ("AA-1.1",), "passed"),
        Result("tests/test_one.py::test_wrong", ("AA-1.2",), "failed"),
    ]


def test_a_run_with_a_wrong_mark_stops_and_says_where(repository: Path) -> None:
    (repository / "tests/test_one.py").write_text(
        "import pytest\n@pytest.mark.req('ZZ-1.1')\ndef test_one():\n    pass\n"
    )

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )

    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert (
        "tests/test_one.py::test_one: the req mark names the unknown requirement 'ZZ-1.1'"
        in run.stdout + run.stderr
    )


def test_the_command_fails_until_every_row_is_proved(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = repository / "results.json"
    one = {"tests/a.py::t": {"ids": ["AA-1.1"], "outcome": "passed"}}
    both = {"tests/a.py::t": {"ids": ["AA-1.1", "AA-1.2"], "outcome": "passed"}}

    results.write_text(json.dumps(one))
    assert tool.main(["--results", str(results)]) == 1
    assert capfd.readouterr().out.endswith("1 of 2 requirements proved\n")

    results.write_text(json.dumps(both))
    assert tool.main(["--results", str(results)]) == 0
    assert capfd.readouterr().out.endswith("2 of 2 requirements proved\n")


def test_the_results_of_several_runs_count_together(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = [repository / "a.json", repository / "b.json"]
    for run, name in zip(runs, ("AA-1.1", "AA-1.2"), strict=True):
        run.write_text(json.dumps({f"tests/{run.stem}.py::t": {"ids": [name], "outcome": "passed"}}))

    assert tool.main(["--results", *map(str, runs)]) == 0
    assert capfd.readouterr().out.endswith("2 of 2 requirements proved\n")


def test_the_command_compares_with_the_open_list(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = repository / "results.json"
    results.write_text(json.dumps({"tests/a.py::t": {"ids": ["AA-1.1"], "outcome": "passed"}}))
    listed = repository / "docs/open.txt"

    listed.write_text("AA-1.2\n")
    assert tool.main(["--results", str(results), "--open", str(listed)]) == 0

    listed.write_text("AA-1.1\nAA-1.2\n")
    assert tool.main(["--results", str(results), "--open", str(listed)]) == 1
    assert "AA-1.1 is proved: remove it" in capfd.readouterr().err


def test_results_that_are_not_there_are_an_error_with_a_way_out(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["--results", str(repository / "none.json")]) == 2
    assert "run `make test`" in capfd.readouterr().err
