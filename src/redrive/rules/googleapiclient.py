# SPDX-License-Identifier: Apache-2.0
"""google-api-python-client and its transport httplib2, which does not wrap most socket errors."""

from __future__ import annotations

from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import classify_response
from redrive.core.verdict import RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, status_in
from redrive.rules.shared.network import network_or_cause


def _answer(exc: BaseException, now: float) -> Verdict | Code:
    response = attribute(exc, "resp")
    status = status_in(response, "status")
    if status is None:
        return taxonomy.REQUEST_INVALID
    # An httplib2 response is itself the mapping of its headers.
    return classify_response(status, now, headers=response, body=attribute(exc, "content"))


RULES: Final[RuleTable] = {
    "HttpError": _answer,
    "InvalidJsonError": taxonomy.SCHEMA_INVALID,
    "UnknownApiNameOrVersion": taxonomy.CONFIG_INVALID,
    "UnknownLinkType": taxonomy.BUG_CODE,
    "UnknownFileType": taxonomy.REQUEST_INVALID,
    "UnacceptableMimeTypeError": taxonomy.REQUEST_INVALID,
    "MediaUploadSizeError": taxonomy.REQUEST_TOO_LARGE,
    "InvalidChunkSizeError": taxonomy.CONFIG_INVALID,
    "InvalidNotificationError": taxonomy.SCHEMA_INVALID,
    "UnexpectedMethodError": taxonomy.BUG_CODE,
    "UnexpectedBodyError": taxonomy.BUG_CODE,
    "ServerNotFoundError": taxonomy.NETWORK_DNS,
    "ProxiesUnavailableError": taxonomy.CONFIG_INVALID,
    "RelativeURIError": taxonomy.CONFIG_INVALID,
    "RedirectMissingLocation": taxonomy.NETWORK_PROTOCOL,
    "RedirectLimit": taxonomy.REQUEST_INVALID,
    "MalformedHeader": taxonomy.NETWORK_PROTOCOL,
    "FailedToDecompressContent": taxonomy.SCHEMA_INVALID,
    "UnimplementedDigestAuthOptionError": taxonomy.AUTH_INVALID,
    "UnimplementedHmacDigestAuthOptionError": taxonomy.AUTH_INVALID,
    "HttpLib2Error": network_or_cause(taxonomy.NETWORK_ERROR),
}
