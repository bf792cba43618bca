# SPDX-License-Identifier: Apache-2.0
"""The Notion SDK: `body` is the raw text with Notion's error name; connection errors are httpx's, not wrapped."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, verdict_from_response


def _answer(exc: BaseException, now: float) -> Verdict | Code:
    return verdict_from_response(exc, now, body=attribute(exc, "body")) or taxonomy.UPSTREAM_ERROR


RULES: Final[RuleTable] = {
    "HTTPResponseError": _answer,
    "RequestTimeoutError": taxonomy.NETWORK_TIMEOUT,
    "InvalidPathParameterError": taxonomy.REQUEST_INVALID,
}
