# SPDX-License-Identifier: Apache-2.0
"""Errors on the way back: dead letters that are not there, and replays that may not be."""

from __future__ import annotations

from redrive.errors.root import RedriveError


class LetterNotFoundError(RedriveError, LookupError):
    """There is no dead letter with this id."""

    code = "letter-not-found"

    def __init__(self, *, letter_id: int) -> None:
        self.letter_id = letter_id
        super().__init__(
            f"there is no dead letter {letter_id}",
            hint="Check the id, and that this is the right database; redrive dlq list shows those there are.",
        )


class ReplayNotFoundError(RedriveError, LookupError):
    """There is no replay with this id."""

    code = "replay-not-found"

    def __init__(self, *, replay: int, hint: str) -> None:
        self.replay = replay
        super().__init__(f"there is no replay {replay}", hint=hint)


class ReplayRefusedError(RedriveError):
    """A replay, a retry or a change of a replay cannot be done as things are; nothing was changed."""

    code = "replay-refused"

    def __init__(self, *, subject: str, problem: str, fix: str) -> None:
        self.subject = subject
        self.problem = problem
        super().__init__(f"{subject}: {problem}", hint=fix)


class EvidenceMissingError(ReplayRefusedError):
    """The rules of the pipeline ask for evidence of a fix before anything of it runs again."""

    code = "evidence-missing"


class NotOwnerError(ReplayRefusedError):
    """Only the owner of a job may do this."""

    code = "not-owner"
