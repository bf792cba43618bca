# SPDX-License-Identifier: Apache-2.0
"""Who may read the files of a database, whatever was there before."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import Pipeline, connect, stage
from redrive.errors import StoreUnavailableError


@stage
def keep(text: str) -> str:
    return text


FLOW = Pipeline("kept", [keep])


def modes(folder: Path) -> set[str]:
    return {oct(each.stat().st_mode & 0o777) for each in folder.iterdir()}


@pytest.mark.parametrize("is_link", [False, True])
def test_a_file_that_was_there_is_closed_to_others_with_all_that_is_beside_it(
    tmp_path: Path, is_link: bool
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    path = real / "jobs.db"
    path.touch(0o644)
    path.chmod(0o644)
    if is_link:
        (tmp_path / "jobs.db").symlink_to(path)
        path = tmp_path / "jobs.db"

    with connect(path) as rd:
        rd.submit(FLOW, "a secret")
        found = modes(real)

    assert not any(int(mode, 8) & 0o007 for mode in found)


def test_rights_that_somebody_gave_to_a_group_stay(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with connect(path) as rd:
        rd.submit(FLOW, "x")
    path.chmod(0o664)

    with connect(path) as rd:
        rd.submit(FLOW, "y")

    assert path.stat().st_mode & 0o777 == 0o660


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    with connect(tmp_path / "other.db") as rd:
        rd.submit(FLOW, "x")
        (lock,) = (each.name for each in tmp_path.iterdir() if "lock" in each.name)
    target = tmp_path / "target"
    (tmp_path / lock.replace("other", "jobs")).symlink_to(target)

    with pytest.raises(StoreUnavailableError), connect(tmp_path / "jobs.db") as rd:
        rd.submit(FLOW, "x")

    assert not target.exists()
