# SPDX-License-Identifier: Apache-2.0
"""Criticizer's code set, as data: its own errors, which of redrive's codes each of them is, and who has to look.

Everything else that can go wrong (the network, a rate limit, a bad key, a bug) redrive knows by the client libraries' own errors.
No repetition heals what Criticizer itself refuses.
"""

from __future__ import annotations

from typing import Any, Final

from redrive import Rule


class CriticizerError(Exception):
    """The root of what Criticizer itself refuses. No problem ever quotes a prompt or an answer."""

    def __init__(self, *, problem: str) -> None:
        super().__init__(problem)


class ChangeNotFoundError(CriticizerError):
    """The repository, a revision or a patch is not there."""


class ChangeTooLargeError(CriticizerError):
    """The change is larger than anybody could review."""


class SourceRefusedError(CriticizerError):
    """The address of a patch is not on the list, or leads to another host."""


class ReviewInvalidError(CriticizerError):
    """The model's answer is no review of the pinned version."""


class ReviewRefusedError(CriticizerError):
    """The model, or the filter before it, would not review this change."""


class ReviewCutError(CriticizerError):
    """The model stopped at its limit in the middle of the review."""


class DestinationInvalidError(CriticizerError):
    """Nobody can be told at this destination."""


RULES: Final[tuple[Rule[Any], ...]] = (
    Rule(ChangeNotFoundError, "NOT_FOUND"),
    Rule(ChangeTooLargeError, "REQUEST_TOO_LARGE"),
    Rule(SourceRefusedError, "REJECTED_POLICY"),
    Rule(ReviewInvalidError, "SCHEMA_INVALID"),
    Rule(ReviewRefusedError, "REJECTED_POLICY"),
    Rule(ReviewCutError, "REQUEST_TOO_LARGE"),
    Rule(DestinationInvalidError, "CONFIG_INVALID"),
)

REVIEWED: Final = frozenset({"REJECTED_POLICY"})
"""Refusals: an operator should look whether they were expected."""

PAGED: Final = frozenset({"BUG_CODE", "BUG_UNKNOWN", "CONFIG_INVALID", "TLS_CERTIFICATE", "WORKER_CRASH"})
"""Our own mistakes: somebody is paged."""
