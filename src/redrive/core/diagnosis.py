# SPDX-License-Identifier: Apache-2.0
"""Suggest a diagnosis for a failure from its code and category, and what to do about it.

It is only a suggestion; the diagnosis that counts is the one an operator records. An application's own codes are not in the
taxonomy, so their category decides.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from redrive.core.failure import Category, Retryable
from redrive.core.taxonomy import CODES


class Diagnosis(StrEnum):
    """What is wrong, and so what has to be fixed."""

    TRANSIENT = "transient"  # it passes by itself: replay when the dependency works again
    DATA = "data"  # the payload is wrong: edit it, or discard the letter
    AUTH_CONFIG = "auth_config"  # credentials, permissions or settings: correct them, then replay
    CODE_DEFECT = "code_defect"  # the program is wrong: fix and deploy it, then replay


_BY_CATEGORY: Final[dict[str, Diagnosis]] = {
    Category.NETWORK: Diagnosis.TRANSIENT,
    Category.RATE_LIMIT: Diagnosis.TRANSIENT,
    Category.UPSTREAM: Diagnosis.TRANSIENT,
    Category.CONFLICT: Diagnosis.TRANSIENT,
    Category.VALIDATION: Diagnosis.DATA,
    Category.AUTH: Diagnosis.AUTH_CONFIG,
    Category.NOT_FOUND: Diagnosis.DATA,
    Category.REJECTED: Diagnosis.DATA,
    Category.BUG: Diagnosis.CODE_DEFECT,
    Category.IO: Diagnosis.AUTH_CONFIG,
    Category.CAPACITY: Diagnosis.TRANSIENT,
}
_BY_CODE: Final[dict[str, Diagnosis]] = {
    "QUOTA_EXHAUSTED": Diagnosis.AUTH_CONFIG,
    "UPSTREAM_UNSUPPORTED": Diagnosis.CODE_DEFECT,
    "CONFIG_INVALID": Diagnosis.AUTH_CONFIG,
    "TLS_CERTIFICATE": Diagnosis.AUTH_CONFIG,
    "JOB_EXPIRED": Diagnosis.TRANSIENT,
    "IO_ERROR": Diagnosis.TRANSIENT,
}
"""Codes whose diagnosis differs from the rest of their category."""
_HINTS: Final = {
    Diagnosis.TRANSIENT: "Check that the dependency works again, then replay.",
    Diagnosis.DATA: "Correct the payload and replay, or discard the letter if nothing needs to be done.",
    Diagnosis.AUTH_CONFIG: "Correct the credentials, the permissions or the configuration, then replay.",
    Diagnosis.CODE_DEFECT: "Read the stack; fix the code, deploy, then replay.",
}


def suggested_diagnosis(category: str, code: str | None = None) -> Diagnosis:
    """Return the probable diagnosis for a category; some codes of the taxonomy have one of their own."""
    if code is not None and code in _BY_CODE:
        return _BY_CODE[code]
    return _BY_CATEGORY.get(category, Diagnosis.CODE_DEFECT)


def remediation_hint(code: str, category: str) -> str:
    """Return what to do about a code: the taxonomy's hint, or the hint for its category if the code is an application's own."""
    known = CODES.get(code)
    return _HINTS[suggested_diagnosis(category)] if known is None else known.hint


def is_retryable(code: str) -> bool | None:
    """Return whether the taxonomy calls this code retryable; None when it depends, or the code is an application's own."""
    known = CODES.get(code)
    if known is None or known.retryable is Retryable.IF_IDEMPOTENT:
        return None
    return known.retryable is Retryable.YES
