# SPDX-License-Identifier: Apache-2.0
"""The error tree: every error survives pickling and copying, and says what to do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from redrive import errors
from redrive.errors import RedriveError

ERRORS: list[RedriveError] = [
    errors.ConfigurationError(field="x", value=-1, rule="must be positive", fix="Use 1."),
    errors.UnknownNameError(
        field="pipeline", value="ordres", rule="is not known here", fix="Did you mean orders?"
    ),
    errors.MissingExtraError(field="--metrics", library="prometheus_client", extra="metrics"),
    errors.BreakerOpenError(breaker="api", retry_at=datetime(2026, 1, 1, tzinfo=UTC), reason="it is open"),
    errors.BreakerOpenError(breaker="api", retry_at=None, reason="it is isolated"),
    errors.AttemptTimeoutError(timeout=3),
    errors.AttemptsSpentError(name="fetch", sentence="asked again"),
    errors.DeadlineExceededError(deadline=9),
    errors.JobNotFoundError(job_id=7),
    errors.JobFailedError(job_id=7, error_code="AUTH_DENIED", message="denied"),
    errors.JobSkippedError(job_id=7, reason="spam"),
    errors.JobCancelledError(job_id=7),
    errors.WaitTimeoutError(job_id=7, status="queued", timeout=3),
    errors.JobExpiredError(late=12.5),
    errors.WorkerCrashError(stage="fetch", exit_code=9, crashes=2),
    errors.WorkerCrashError(stage="fetch", exit_code=None, crashes=1),
    errors.BatchResultError(stage="embed", inputs=64, returned=63),
    errors.RunError(run=3, problem="is not known here", fix="Start one."),
    errors.FailureBudgetExceededError(run=3, sentence="2 of 2 failed", rate=1.0, report="the report"),
    errors.SerializationError(
        where="fetch (input)", kind="JSON", problem="Expected `int`, got `str` - at `$.n`"
    ),
    errors.StoreUnavailableError(database="x.db", cause="locked"),
    errors.StoreRefusedError(database="x.db", cause="UNIQUE"),
    errors.StoreDamagedError(database="x.db", cause="malformed"),
    errors.SchemaMismatchError(database="x.db", found=2, known=1),
    errors.JobErasedError(job_id=7),
    errors.LetterNotFoundError(letter_id=7),
    errors.ReplayNotFoundError(replay=7, hint="There are: 1."),
    errors.ReplayRefusedError(subject="job 7", problem="it is queued", fix="Wait."),
    errors.EvidenceMissingError(subject="job 7", problem="no evidence", fix="Record it."),
    errors.NotOwnerError(subject="job 7", problem="somebody else's", fix="Ask."),
    errors.BodyTooLargeError(limit=5, is_decompressed=True),
    errors.BodyInvalidError(problem="it is no JSON"),
    errors.BodyEncodingError(allowed="gzip"),
    errors.BodyTimeoutError(seconds=30),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_every_error_survives_copying_and_pickling(
    error: RedriveError, way: Callable[[RedriveError], RedriveError]
) -> None:
    again = way(error)

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_list_above_is_the_whole_tree() -> None:
    def below(kind: type[RedriveError]) -> set[type[RedriveError]]:
        own = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
        return {kind, *(deeper for child in own for deeper in below(child))}

    branches = {RedriveError, errors.StoreError, errors.BodyError}
    assert below(RedriveError) - branches == {type(error) for error in ERRORS}


@pytest.mark.parametrize("kind", [RedriveError, errors.StoreError, errors.BodyError, *map(type, ERRORS)])
def test_every_error_is_named_and_found_where_it_is_imported_from(kind: type[RedriveError]) -> None:
    """The name is stored with the failure, and rules match it: the file behind it may change, the name may not."""
    assert kind.__module__ == "redrive.errors"
    assert getattr(errors, kind.__name__) is kind
    assert kind.__name__ in errors.__all__


def test_an_error_that_others_derive_keeps_the_name_of_its_own_home() -> None:
    class Tagged:
        tag = ""

        def __init_subclass__(cls, *, tag: str) -> None:
            cls.tag = tag

    class OwnError(errors.StoreError, Tagged, tag="own"):
        code = "own"

    assert OwnError.__module__ == __name__
    assert OwnError.tag == "own"
    assert type("HomelessError", (RedriveError,), {"__module__": None}).__module__ is None


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_has_a_code_and_a_hint(error: RedriveError) -> None:
    assert error.code
    assert error.hint


def test_a_value_whose_repr_fails_or_is_huge_still_makes_a_message() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert "Mute whose repr fails" in str(
        errors.ConfigurationError(field="x", value=Mute(), rule="r", fix="f")
    )
    assert len(errors.short_repr("x" * 10_000)) == errors.SHOWN_MAX
