# SPDX-License-Identifier: Apache-2.0
"""The Notion SDK: `body` is the raw text with Notion's error name; connection errors are httpx's, not wrapped."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import classify_response
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, status_in


def _answer(exc: BaseException, now: float) -> Verdict | Code:
    status = status_in(exc, "status")
    if status is None:
        return taxonomy.UPSTREAM_ERROR
    return classify_response(status, now, headers=attribute(exc, "headers"), body=attribute(exc, "body"))


RULES: Final[RuleTable] = {
    "HTTPResponseError": _answer,
    "RequestTimeoutError": taxonomy.NETWORK_TIMEOUT,
    "InvalidPathParameterError": taxonomy.REQUEST_INVALID,
}
