# SPDX-License-Identifier: Apache-2.0
"""FetchBox's codes, as data: what each takes, whether it is retried, and its texts. The API and the worker share them.

The prefix is the category: VALIDATION_ and AUTH_ are answered by the API and are fatal in a worker; HANDLER_ and SYSTEM_ are dead
letters at once; DOWNLOAD_, UPLOAD_ and STORAGE_ are retried if the failure is retryable. The page about them is checked against
this.
"""

from __future__ import annotations

from typing import Final

from apps.fetchbox.transfer.proxies import ProxiesExhaustedError
from redrive import Category, CodeSet, OwnCode

FAMILIES: Final = ("VALIDATION", "AUTH", "HANDLER", "DOWNLOAD", "UPLOAD", "STORAGE", "SYSTEM")
_D: Final = ("download",)
_U: Final = ("upload",)
_FIX: Final = "Correct the manifest and post it again; discard the letter."


def _fatal(name: str, line: str, hint: str = _FIX) -> OwnCode:
    return OwnCode(name, category=Category.VALIDATION, retryable=False, line=line, hint=hint)


# Two lines per row, which the formatter would make nine.
# fmt: off
CODES: Final = CodeSet("fetchbox", [
    _fatal("VALIDATION_MISSING_FIELD", "A field of the manifest is missing."),
    _fatal("VALIDATION_INVALID_FIELD", "A field of the manifest has the wrong type or value."),
    _fatal("VALIDATION_INVALID_JSON", "The body is not JSON, or not readable."),
    _fatal("VALIDATION_INVALID_URL", "A resource has no http or https URL."),
    _fatal("VALIDATION_DUPLICATE_ID", "Two resources have the same id."),
    _fatal("VALIDATION_TOO_LARGE", "The manifest, or a part of it, is larger than allowed.", "Split the manifest."),
    _fatal("VALIDATION_CONTENT_TYPE", "The body must be application/json.", "Set Content-Type and Content-Encoding."),
    _fatal("VALIDATION_TIMEOUT", "The body did not arrive in time.", "Post it again over a better connection."),
    _fatal("VALIDATION_KEY_REUSED", "The Idempotency-Key was used for another manifest.", "Use a new key for a new manifest."),
    _fatal("VALIDATION_UNKNOWN_JOB", "There is no such job.", "Check the id; snapshots are deleted after their retention."),
    OwnCode("AUTH_MISSING_CREDENTIALS", category=Category.AUTH, retryable=False,
            line="The request has no credentials.", hint="Send Authorization: Bearer with the tenant's token."),
    OwnCode("AUTH_INVALID_CREDENTIALS", category=Category.AUTH, retryable=False,
            line="The credentials are not accepted.", hint="Check the tenant's token."),
    OwnCode("AUTH_UNKNOWN_TYPE", category=Category.AUTH, retryable=False,
            line="This job type does not exist, or not for you.", hint="Use a configured job type."),
    OwnCode("HANDLER_REFUSED", category=Category.REJECTED, retryable=False,
            line="The handler refused it.", hint="Read the message; correct the manifest or the handler, then replay."),
    OwnCode("HANDLER_ERROR", category=Category.BUG, retryable=False,
            line="The handler has a bug.", hint="Read the stack; fix the handler, deploy, then replay."),
    OwnCode("DOWNLOAD_PROXY_EXHAUSTED", [ProxiesExhaustedError], category=Category.NETWORK, retryable=True,
            line="Every proxy of the pool was tried.", hint="Check the pool and its fallbacks, then replay."),
    OwnCode("DOWNLOAD_ADDRESS_REFUSED", category=Category.REJECTED, retryable=False,
            line="The address is private.", hint="Allow private addresses if it may be fetched, then replay; else discard."),
    OwnCode("DOWNLOAD_TOO_LARGE", category=Category.VALIDATION, retryable=False,
            line="The resource is larger than allowed.", hint="Raise FETCHBOX_OBJECT_MAX if it may be, then replay."),
    OwnCode("DOWNLOAD_CHECKSUM", category=Category.VALIDATION, retryable=False,
            line="The resource is not the expected one.", hint="Compare its SHA-256 with the manifest's, then replay."),
    OwnCode("DOWNLOAD_HTTP_4XX", [408, 429, 499], stages=_D, category=Category.RATE_LIMIT, retryable=True,
            line="The origin asks to come later.", hint="Fetch fewer at once, then replay."),
    OwnCode("DOWNLOAD_HTTP_4XX", [range(400, 500)], stages=_D, category=Category.NOT_FOUND, retryable=False,
            line="The origin refuses the request.", hint="Correct the URL or the headers, then replay; or discard."),
    OwnCode("DOWNLOAD_HTTP_OTHER", [range(100, 400)], stages=_D, category=Category.VALIDATION, retryable=False,
            line="The origin answered without the resource.", hint="Correct the URL or the headers, then replay; or discard."),
    OwnCode("DOWNLOAD_HTTP_5XX", [range(500, 600)], stages=_D, category=Category.UPSTREAM, retryable=True,
            line="The origin failed.", hint="Check that it is up, then replay."),
    OwnCode("DOWNLOAD_INVALID_URL", ["CONFIG_INVALID", "REQUEST_INVALID"], stages=_D, category=Category.VALIDATION,
            retryable=False, line="The URL, or a redirect, cannot be fetched.", hint=_FIX),
    OwnCode("DOWNLOAD_TIMEOUT", ["NETWORK_TIMEOUT", "TIMEOUT"], stages=_D, category=Category.NETWORK, retryable=True,
            line="The origin took too long.", hint="Check that it is up, then replay."),
    OwnCode("DOWNLOAD_DNS", ["NETWORK_DNS"], stages=_D, category=Category.NETWORK, retryable=True,
            line="The host has no address.", hint="Check the name and the resolver, then replay."),
    OwnCode("DOWNLOAD_NETWORK", [Category.NETWORK], stages=_D, category=Category.NETWORK, retryable=True,
            line="The connection to the origin, or to the proxy, failed.", hint="Check both, then replay."),
    OwnCode("UPLOAD_ACCESS_DENIED", [Category.AUTH, 401, 403], stages=_U, category=Category.AUTH, retryable=False,
            line="The object store denies access.", hint="Grant it, or renew the credentials, then replay."),
    OwnCode("UPLOAD_INVALID_BUCKET", [Category.NOT_FOUND, "CONFIG_INVALID", "SCHEMA_INVALID", 404], stages=_U,
            category=Category.NOT_FOUND, retryable=False,
            line="The bucket or the key is not valid.", hint="Correct the job type's bucket, then replay."),
    OwnCode("UPLOAD_THROTTLED", [Category.RATE_LIMIT, 429, 503], stages=_U, category=Category.RATE_LIMIT, retryable=True,
            line="The object store asks to slow down.", hint="Upload fewer at once, then replay."),
    OwnCode("UPLOAD_S3_ERROR", [range(500, 600), Category.UPSTREAM, Category.CONFLICT], stages=_U,
            category=Category.UPSTREAM, retryable=True,
            line="The object store failed.", hint="Check its status, then replay."),
    OwnCode("UPLOAD_NETWORK", [Category.NETWORK], stages=_U, category=Category.NETWORK, retryable=True,
            line="The object store could not be reached.", hint="Check that it is up, then replay."),
    OwnCode("STORAGE_UNAVAILABLE", category=Category.UPSTREAM, retryable=True,
            line="The manifest could not be stored.", hint="Check the object store; the client posts again."),
    OwnCode("STORAGE_LOCAL_DISK", [Category.IO, Category.CAPACITY], category=Category.IO,
            line="The worker's own disk failed.", hint="Check its space and its mode, then replay."),
    OwnCode("SYSTEM_UNAVAILABLE", category=Category.UPSTREAM, retryable=True,
            line="A component of the service is away.", hint="See /healthz for which one; the client posts again."),
    OwnCode("SYSTEM_CRASH", ["WORKER_CRASH"], category=Category.BUG, retryable=False,
            line="The process that ran it died.", hint="Look for memory limits and native crashes; fix them, then replay."),
], otherwise=OwnCode("SYSTEM_PANIC", category=Category.BUG, retryable=False,
            line="FetchBox has a bug.", hint="Read the stack; fix the code, deploy, then replay."))
# fmt: on
