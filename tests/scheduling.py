# SPDX-License-Identifier: Apache-2.0
"""Which tests share one process of a run that several processes make: those that share what is expensive to set up.

With `--dist=loadgroup`, in place of xdist's own groups: xdist 3.8 names them in a way that pytest 9.2 ignores, without a word.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

GROUPS: Final = {
    # One process reads all files, and keeps what it has read.
    "tests/test_docs.py": "repository",
    "tests/test_tidy.py": "repository",
    # Applications whose tests share an installation of several programs.
    "apps/fetchbox/": "fetchbox",
    "apps/pdf2xml/": "pdf2xml",
}
"""The group of the tests whose path begins so."""


def group_of(nodeid: str) -> str:
    """Return what a test is kept together with; itself, if with none."""
    return next((group for path, group in GROUPS.items() if nodeid.startswith(path)), nodeid)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc] # its library comes without types
    """Gives each group to one process, the largest first, and other tests to whichever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
