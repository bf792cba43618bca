# SPDX-License-Identifier: Apache-2.0
"""Which installation a file is: a copy of it, and one that was put back to an earlier state, are installations of their own.

Two files that continue from the same state would give the same ids, and so the same idempotency keys, to different jobs. A copy is
another file than its installation was recorded for; a file that was put back has given out fewer ids than its lock file says.
What was there before keeps its keys.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from typing import Final

logger = logging.getLogger("redrive.store")

NEW_INSTALLATION: Final = """
    INSERT INTO installations (id, first_job, first_letter, secret)
    SELECT lower(hex(randomblob(8))), coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0) + 1,
        coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'dead_letters'), 0) + 1, secret
    FROM installations ORDER BY number DESC LIMIT 1"""
_RECORDED: Final = """
    SELECT file, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0)
    FROM installations ORDER BY number DESC LIMIT 1"""
_RECORD: Final = "UPDATE installations SET file = ? WHERE number = (SELECT max(number) FROM installations)"


def identify(db: sqlite3.Connection, path: str, highest: int) -> int:
    """Record, before the first write, which file this is; `highest` is the last job id that anybody noted for it.

    Returns the last id that it has really given out.
    """
    file = os.stat(path).st_ino  # noqa: PTH116 - as everywhere here, a path is a text.
    recorded, last = db.execute(_RECORDED).fetchone()
    is_copy, is_put_back = recorded not in {None, file}, last < highest
    if is_copy or is_put_back:
        db.execute(NEW_INSTALLATION)
        state = "a copy of another database" if is_copy else "in an earlier state than before"
        logger.warning("%s is %s: its new jobs get keys of their own", path, state)
    if recorded != file or is_put_back:
        db.execute(_RECORD, (file,))
    return int(last)
