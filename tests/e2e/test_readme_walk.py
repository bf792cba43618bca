# SPDX-License-Identifier: Apache-2.0
"""The five minutes of the README: its files and commands, in order, as a newcomer types them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tidy.pages import Block, blocks_in
from tests.tidy.tree import ROOT

TITLE = "## Five minutes: a failure, its cause, the fix, the replay"


def walk() -> list[Block]:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    return blocks_in(page.partition(TITLE)[2].partition("\n## ")[0])


def typed(commands: str, folder: Path) -> str:
    """Run the commands of a block with a plain shell; what they print for people is on stdout."""
    bin_ = Path(sys.executable).parent
    ran = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=folder,
        env={"PATH": f"{bin_}:/usr/bin:/bin", "COLUMNS": "200", "REDRIVE_DATABASE_URL": "orders.db"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def lines_of(text: str) -> list[str]:
    """Return the lines without their ages and durations, which differ from run to run, and without what the page leaves out."""
    plain = re.sub(r"\d[\d.e-]* (?:ms|s)\b", "T", text)
    return [" ".join(line.split()).removesuffix(" ...") for line in plain.splitlines() if line.strip()]


def test_the_walk_works_as_it_is_written(tmp_path: Path) -> None:
    module, submit, counts, look, found, fix, replay, result = (block.text for block in walk())
    assert shutil.which("redrive", path=str(Path(sys.executable).parent))

    (tmp_path / "shop.py").write_text(module, encoding="utf-8")
    submitted = lines_of(typed(submit, tmp_path))
    looked = lines_of(typed(look, tmp_path))
    before, after = 'return float(order["amount"])', fix.strip()
    assert before in module
    (tmp_path / "shop.py").write_text(module.replace(before, after), encoding="utf-8")
    replayed = lines_of(typed(replay, tmp_path))

    assert submitted[-3:] == lines_of(counts)
    for line in lines_of(found):
        assert any(each.startswith(line) for each in looked), line
    assert replayed[-3:] == lines_of(result)
