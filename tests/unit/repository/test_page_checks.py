# SPDX-License-Identifier: Apache-2.0
"""The checks of documentation pages are fed wrong pages and must complain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy import pages
from tests.tidy.tree import ROOT

FENCED = """\
text
```python
print(1)
```
~~~text
```python
not a block of its own
```
~~~
- item
  ```python no-run: needs a real account
  connect()
  ```
"""


def test_blocks_are_found_with_their_info_and_line() -> None:
    first, second, third = pages.blocks_in(FENCED)

    assert first == pages.Block(3, "python", "print(1)\n")
    assert second.info == "text"
    assert third == pages.Block(12, "python no-run: needs a real account", "connect()\n")


@pytest.mark.parametrize(
    "info", ["python no-run", "python no-run:", "python no-run: no", "python skip", "py", "pycon"]
)
def test_python_that_would_not_run_is_found(info: str) -> None:
    assert len(pages.odd_fences(f"```{info}\nx\n```\n")) == 1


@pytest.mark.parametrize("info", ["python", "python no-run: needs a real account", "sh", "", "pyproject"])
def test_other_blocks_are_left_alone(info: str) -> None:
    assert pages.odd_fences(f"```{info}\nx\n```\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](other.md)", []),
        ("[a](other.md#a-heading-here)", []),
        ("[a](other.md#named)", []),
        ("[a](#mine)\n## Mine", []),
        ("[a](https://example.invalid/x)", []),
        ("`[a](nowhere.md)`", []),
        ("```\n[a](nowhere.md)\n```", []),
        ("[a](nowhere.md)", ["nowhere.md: there is no such file"]),
        ("![a](picture.svg)", ["picture.svg: there is no such file"]),
        ("[a](../../outside.md)", ["../../outside.md: there is no such file"]),
        ("[a](other.md#missing)", ["other.md#missing: there is no such heading"]),
        ("[a](other.md#in-code)", ["other.md#in-code: there is no such heading"]),
        ("[a](#missing)", ["#missing: there is no such heading"]),
    ],
)
def test_links_lead_to_files_and_headings(tmp_path: Path, text: str, expected: list[str]) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(text)
    (page.parent / "other.md").write_text('# A heading: here\n<a id="named"></a>\n```\n# in code\n```\n')

    assert pages.broken_links(page, text, tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`core.decide`, `redrive.core.decide.decide`, `redrive.errors`, `engine/clock.py`, `config.py`", []),
        ("`src/redrive/core/decide.py`, `tests/tidy`, `docs/adr/`, `redrive.guard`, engine.nowhere", []),
        ("`engine.loops`", ["engine.loops: there is no such module or name"]),
        ("`redrive.core.decide.nothing`", ["redrive.core.decide.nothing: there is no such module or name"]),
        ("`engine/loops.py`", ["engine/loops.py: there is no such file"]),
        ("`tests/nowhere`", ["tests/nowhere: there is no such file"]),
    ],
)
def test_modules_and_files_exist(text: str, expected: list[str]) -> None:
    assert pages.unknown_modules(text, ROOT) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `make test` and `make test JOBS=4`", []),
        ("they make money", []),
        ("```sh\nmake run\n```", []),
        ("run `make tests`", ["make tests: there is no such target"]),
        ("```console\n$ make everything\n```", ["make everything: there is no such target"]),
    ],
)
def test_commands_exist(text: str, expected: list[str]) -> None:
    targets = pages.targets_in("run: setup ## Run\n\techo\ntest:\nVAR := x\n")

    assert pages.unknown_commands(text, targets) == expected
