# SPDX-License-Identifier: Apache-2.0
"""The record of a dead letter, as lists, details, acts and exports read it.

Texts were redacted when they were written; values of jobs are not part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from redrive.errors import LetterNotFoundError
from redrive.ops.suggest import LAST_ID, id_hint
from redrive.store.reader import Reader
from redrive.store.statements import letters as letter_sql
from redrive.store.statements.letters import DeadLetter, LetterLine


def get_letter(store: Reader, letter_id: int) -> DeadLetter:
    """Return a dead letter; raises LetterNotFoundError whose hint lists ids close to it."""
    # An id beyond 64 bits cannot be asked for, let alone exist.
    rows = store.query(letter_sql.letter(letter=letter_id)) if 0 <= letter_id < LAST_ID else []
    if not rows:
        error = LetterNotFoundError(letter_id=letter_id)
        error.hint = id_hint(store, "letter", letter_id)
        raise error
    return rows[0]


def lines_of(store: Reader, ids: Sequence[int]) -> list[LetterLine]:
    """Return the letters with these ids, in this order; those that are gone are left out."""
    rows = {row.id: row for row in store.query(letter_sql.letter_lines(ids=list(ids)))}
    return [rows[letter] for letter in ids if letter in rows]
