# SPDX-License-Identifier: Apache-2.0
"""obstore: by class; exceptions without a class of their own have only a text.

The text ends with the fields of the Rust error: the HTTP status with the store's XML, the number of the operating system, or the
HTTP client's kind of error. Only these fields are parsed. The text has no Retry-After header.
"""

from __future__ import annotations

import re
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import classify_response
from redrive.core.verdict import RuleFunction, RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, text_of
from redrive.rules.shared.oserrors import code_for_errno

_TEXT_MAX: Final = 65_536
_DEBUG: Final = "\n\nDebug source:\n"
_STATUS: Final = re.compile(r"\bstatus: ([1-5]\d\d),")
_OS_NUMBER: Final = re.compile(r"\bOs \{\s*code: (\d{1,5}),")
_HTTP_KIND: Final = re.compile(r"\bHttpError \{\s*kind: (\w+),")
_XML_FIELD: Final = re.compile(r"<(Code|RequestId)>([^<]{1,200})</")
_KINDS: Final[dict[str, Code]] = {
    "Connect": taxonomy.NETWORK_ERROR,
    "Timeout": taxonomy.NETWORK_TIMEOUT,
    "Interrupted": taxonomy.NETWORK_RESET,
    "Request": taxonomy.NETWORK_RESET,
    "Decode": taxonomy.NETWORK_PROTOCOL,
    "Unknown": taxonomy.NETWORK_PROTOCOL,
}
_FIELD_TEXTS: Final[tuple[tuple[str, Code], ...]] = (
    ("BadScheme", taxonomy.CONFIG_INVALID),
    ("MissingBucketName", taxonomy.CONFIG_INVALID),
    ('"dns error"', taxonomy.NETWORK_DNS),
    ("InvalidCertificate", taxonomy.TLS_CERTIFICATE),
    ("kind: UnexpectedEof", taxonomy.NETWORK_PROTOCOL),
)


def _from_fields(exc: BaseException, now: float) -> Verdict | Code | None:
    prose, _, fields = text_of(exc)[:_TEXT_MAX].partition(_DEBUG)
    status = _STATUS.search(fields)
    if status:
        # If a field occurs twice, the last one counts; S3 writes each once.
        body = dict(_XML_FIELD.findall(prose))
        return classify_response(int(status[1]), now, body=body)
    by_text = next((code for text, code in _FIELD_TEXTS if text in fields), None)
    number = _OS_NUMBER.search(fields)
    if by_text is not None or number:
        return by_text or code_for_errno(int(number[1]) if number else None)
    kind = _HTTP_KIND.search(fields)
    return _KINDS.get(kind[1]) if kind else None


def _or(fallback: Code) -> RuleFunction:
    return lambda exc, now: _from_fields(exc, now) or fallback


def missing_object(exc: BaseException, now: float) -> Verdict | Code | None:
    """Classify what obstore raises for a missing object: the built-in FileNotFoundError, without a number."""
    text = text_of(exc)
    if attribute(exc, "errno") is not None or f"{_DEBUG}NotFound {{" not in text:
        return None
    return _from_fields(exc, now) or taxonomy.NOT_FOUND


RULES: Final[RuleTable] = {
    "NotFoundError": _or(taxonomy.NOT_FOUND),
    "PermissionDeniedError": _or(taxonomy.AUTH_DENIED),
    "UnauthenticatedError": _or(taxonomy.AUTH_INVALID),
    "AlreadyExistsError": _or(taxonomy.CONFLICT),
    "PreconditionError": _or(taxonomy.CONFLICT),
    # The answer to a conditional read of an unchanged object. The caller must expect it; a retry gets it again.
    "NotModifiedError": taxonomy.BUG_CODE,
    "InvalidPathError": taxonomy.SCHEMA_INVALID,
    "NotSupportedError": taxonomy.UPSTREAM_UNSUPPORTED,
    "UnknownConfigurationKeyError": taxonomy.CONFIG_INVALID,
    "JoinError": taxonomy.BUG_CODE,
    "BaseError": _from_fields,
}
