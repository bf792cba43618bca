# SPDX-License-Identifier: Apache-2.0
"""Applications' own codes as data: precedence, per stage, limits, and refusal of nonsense."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from redrive import Category, CodeSet, ConfigurationError, Fail, OwnCode, Retryable, Severity, classify
from redrive.core import taxonomy

from .build import failure

GATEWAY = CodeSet(
    "pdf2xml",
    [
        OwnCode(
            "GW_TIMEOUT",
            ["NETWORK_TIMEOUT", "TIMEOUT"],
            retryable=True,
            line="Conversion is taking too long.",
        ),
        OwnCode("IO_ERROR", ["DISK_FULL"], retryable=False, line="Temporary storage issue."),
        OwnCode(
            "IO_ERROR",
            [Category.IO, FileExistsError],
            retryable=True,
            max_attempts=2,
            line="Temporary storage issue.",
        ),
        OwnCode("GW_5XX", [408, 425, 429, range(500, 600), "network"], retryable=True, stages=["convert"]),
        OwnCode(
            "GW_4XX",
            [range(400, 500)],
            retryable=False,
            stages=["convert"],
            severity=Severity.WARNING,
            hint="Look at the mapping.",
        ),
        OwnCode("NOT_PDF"),
    ],
    otherwise=OwnCode("UNKNOWN", line="Something went wrong. We have logged it."),
)


@pytest.mark.parametrize(
    ("what", "stage", "code", "retryable"),
    [
        (failure(taxonomy.NETWORK_TIMEOUT), "convert", "GW_TIMEOUT", True),
        (failure(taxonomy.UPSTREAM_UNSUPPORTED, http_status=501), "convert", "GW_5XX", True),
        (failure(taxonomy.RATE_LIMITED, http_status=429), "convert", "GW_5XX", True),
        (failure(taxonomy.NETWORK_REFUSED), "convert", "GW_5XX", True),
        (failure(taxonomy.REQUEST_INVALID, http_status=406), "convert", "GW_4XX", False),
        (failure(taxonomy.REQUEST_INVALID, http_status=406), "store", "UNKNOWN", False),
        (failure(taxonomy.IO_ERROR), None, "IO_ERROR", True),
        (failure(taxonomy.DISK_FULL), None, "IO_ERROR", False),
        (failure(taxonomy.BUG_CODE, lineage=("FileExistsError", "OSError")), None, "IO_ERROR", True),
        (failure(taxonomy.BUG_CODE, lineage=()), None, "UNKNOWN", False),
    ],
)
def test_the_first_entry_that_takes_a_failure_names_it(
    what: object, stage: str | None, code: str, retryable: bool
) -> None:
    own = GATEWAY.translate(what, stage=stage)  # type: ignore[arg-type]

    assert (own.code, own.retryable) == (code, retryable)
    assert own.canonical == what.code  # type: ignore[attr-defined]


def test_an_own_code_brings_its_own_words_and_limit_and_keeps_the_facts() -> None:
    own = GATEWAY.translate(
        failure(taxonomy.REQUEST_INVALID, http_status=400, retry_after=3.0), stage="convert"
    )

    assert (own.hint, own.severity, own.http_status, own.retry_after) == (
        "Look at the mapping.",
        "warning",
        400,
        3.0,
    )
    assert own.line == taxonomy.REQUEST_INVALID.line
    assert own.rule.endswith("-> GW_4XX")
    assert GATEWAY.translate(failure(taxonomy.IO_ERROR)).max_attempts == 2


def test_classify_translates_when_given_a_code_set() -> None:
    assert classify(TimeoutError(), codes=GATEWAY).code == "GW_TIMEOUT"


def test_a_fail_signal_may_name_an_own_code() -> None:
    assert classify(Fail("NOT_PDF"), codes=GATEWAY).code == "NOT_PDF"
    assert classify(Fail("IO_ERROR"), codes=GATEWAY).retryable is False
    strange = classify(Fail("NOT_PFD"), codes=GATEWAY)
    assert strange.code == "UNKNOWN"
    assert "NOT_PFD is not a code of pdf2xml" in strange.rule


def test_retryable_may_depend_on_the_stage_being_idempotent() -> None:
    race = CodeSet(
        "app", [OwnCode("RACE", ["CONFLICT"], retryable=Retryable.IF_IDEMPOTENT)], otherwise=OwnCode("ELSE")
    )

    assert race.translate(failure(taxonomy.CONFLICT), idempotent=True).retryable
    assert not race.translate(failure(taxonomy.CONFLICT), idempotent=False).retryable


def test_codes_are_found_by_name() -> None:
    assert GATEWAY["GW_4XX"].hint == "Look at the mapping."
    assert GATEWAY.names == ("GW_TIMEOUT", "IO_ERROR", "GW_5XX", "GW_4XX", "NOT_PDF", "UNKNOWN")
    with pytest.raises(ConfigurationError, match="Did you mean GW_5XX"):
        GATEWAY["GW_3XX"]


@pytest.mark.parametrize(
    "build",
    [
        lambda: OwnCode("X", "NETWORK_TIMEOUT"),
        lambda: OwnCode("X", ["NO_SUCH"]),
        lambda: OwnCode("X", [99]),
        lambda: OwnCode("X", [True]),
        lambda: OwnCode("X", [int]),  # type: ignore[list-item]
        lambda: OwnCode("X", max_attempts=0),
        lambda: OwnCode(""),
        lambda: OwnCode(5),  # type: ignore[arg-type]
        lambda: OwnCode("X", 429),  # type: ignore[arg-type]
        lambda: OwnCode("X", stages="convert"),
        lambda: OwnCode("X", retryable="no"),  # type: ignore[arg-type]
        lambda: CodeSet("app", ["X"], otherwise=OwnCode("Y")),  # type: ignore[list-item]
        lambda: CodeSet("app", [], otherwise="Y"),  # type: ignore[arg-type]
        lambda: taxonomy.code_named("NETWORK_TIMEOOT"),
        lambda: taxonomy.code_named("ZZZ"),
        lambda: replace(taxonomy.IO_ERROR, name="bad"),
        lambda: replace(taxonomy.IO_ERROR, line=" "),
        lambda: replace(taxonomy.IO_ERROR, max_attempts=0),
    ],
)
def test_wrong_codes_are_refused_with_a_fix(build: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        build()

    assert refused.value.fix


def test_near_codes_are_named() -> None:
    with pytest.raises(ConfigurationError, match="NETWORK_TIMEOUT"):
        taxonomy.code_named("NETWORK_TIMEOOT")


@pytest.mark.parametrize("name", ["zzz", "XYZZY_FROBNICATED"])
def test_a_code_that_resembles_none_does_not_list_them_all(name: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        taxonomy.code_named(name)

    assert len(str(refused.value)) < 200
    assert "docs/failures.md" in refused.value.fix


def test_every_canonical_code_is_complete() -> None:
    for name, code in taxonomy.CODES.items():
        assert name == code.name
        assert code.line.endswith(".")
        assert code.hint.endswith(".")
    assert {code.category for code in taxonomy.CODES.values()} == set(Category)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("NETWORK_TIMEOUT", "GW_TIMEOUT"),
        ("DISK_FULL", "IO_ERROR"),
        ("IO_DENIED", "IO_ERROR"),
        ("NETWORK_RESET", "UNKNOWN"),  # only in one stage it has a name of its own
        ("NOT_PDF", "NOT_PDF"),
        ("NEVER_HEARD_OF", "UNKNOWN"),
    ],
)
def test_a_code_alone_can_be_told_in_the_words_of_a_set(code: str, name: str) -> None:
    assert GATEWAY.for_code(code).name == name


def test_the_first_entry_that_takes_a_code_names_it() -> None:
    assert (GATEWAY.for_code("DISK_FULL").retryable, GATEWAY.for_code("IO_ERROR").retryable) == (False, True)


def test_a_name_has_a_category_when_its_entries_agree_on_one() -> None:
    codes = CodeSet(
        "app",
        [
            OwnCode("DOWN", ["network"], category=Category.NETWORK),
            OwnCode("DOWN", [503], category=Category.NETWORK),
            OwnCode("ODD", [501], category=Category.BUG),
            OwnCode("ODD", [400], category=Category.VALIDATION),
        ],
        otherwise=OwnCode("REST"),
    )

    told = [codes.category_of(name) for name in ("DOWN", "ODD", "REST", "NONE")]
    assert told == [Category.NETWORK, None, None, None]
