# SPDX-License-Identifier: Apache-2.0
"""Errors about dead letters and replays."""

from __future__ import annotations

from redrive.errors.root import RedriveError


class LetterNotFoundError(RedriveError, LookupError):
    """There is no dead letter with this id."""

    code = "letter-not-found"

    def __init__(self, *, letter_id: int) -> None:
        self.letter_id = letter_id
        super().__init__(
            f"there is no dead letter {letter_id}",
            hint="Check the id and the database; redrive dlq list shows the dead letters.",
        )


class ReplayNotFoundError(RedriveError, LookupError):
    """There is no replay with this id."""

    code = "replay-not-found"

    def __init__(self, *, replay: int, hint: str) -> None:
        self.replay = replay
        super().__init__(f"there is no replay {replay}", hint=hint)


class ReplayRefusedError(RedriveError):
    """A replay, a retry or a change of a replay is not possible now; nothing was changed."""

    code = "replay-refused"

    def __init__(self, *, subject: str, problem: str, fix: str) -> None:
        self.subject = subject
        self.problem = problem
        super().__init__(f"{subject}: {problem}", hint=fix)


class EvidenceMissingError(ReplayRefusedError):
    """The pipeline's replay rules require evidence of a fix before its jobs run again."""

    code = "evidence-missing"


class NotOwnerError(ReplayRefusedError):
    """Only the owner of a job may do this."""

    code = "not-owner"
