# SPDX-License-Identifier: Apache-2.0
"""CollabIQ's codes, as data: three classes of error, and codes for a mail that is itself the problem."""

from __future__ import annotations

from typing import Final

from redrive import Category, CodeSet, OwnCode

MAIL_GONE: Final = "MAIL_GONE"
MAIL_TOO_LARGE: Final = "MAIL_TOO_LARGE"
MAIL_UNREADABLE: Final = "MAIL_UNREADABLE"
NO_ANSWER: Final = "REJECTED_POLICY"
"""Raised as `Fail(code)`: the mail is wrong, not the service, so there is no retry and no breaker counts it."""

CLASSES: Final = CodeSet(
    "collabiq",
    [
        OwnCode("PERMANENT", ["AUTH_DENIED"], line="The credentials do not allow this."),
        OwnCode(
            "CRITICAL",
            [Category.AUTH],
            line="The credentials were not accepted.",
            hint="Renew them, then replay.",
        ),
        OwnCode(
            "TRANSIENT",
            [
                Category.NETWORK,
                Category.RATE_LIMIT,
                Category.UPSTREAM,
                "CONFLICT",
                "IO_ERROR",
                "QUEUE_FULL",
                "LOCAL_TIMEOUT",
                "RESOURCE_EXHAUSTED",
            ],
            line="The service could not answer.",
        ),
    ],
    otherwise=OwnCode("PERMANENT", line="A retry does not help."),
)
"""The classes of error: network, timeouts, 5xx and rate limits are retryable; credentials that are missing, wrong or
expired are critical; the rest is permanent, a 403 too.

`CLASSES.for_code` returns the class of a code in an event or a dead letter; our own codes are about a mail, and are permanent."""
