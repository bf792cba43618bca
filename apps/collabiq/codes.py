# SPDX-License-Identifier: Apache-2.0
"""CollabIQ's codes, as data: its three classes of error, and what it calls a mail that is itself the problem."""

from __future__ import annotations

from typing import Final

from redrive import Category, CodeSet, OwnCode

MAIL_GONE: Final = "MAIL_GONE"
MAIL_TOO_LARGE: Final = "MAIL_TOO_LARGE"
MAIL_UNREADABLE: Final = "MAIL_UNREADABLE"
NO_ANSWER: Final = "REJECTED_POLICY"
"""Raised as `Fail(code)`: the mail is at fault and not the service, so nothing is tried again and no breaker hears of it."""

CLASSES: Final = CodeSet(
    "collabiq",
    [
        OwnCode(
            "CRITICAL", [Category.AUTH], line="The credentials do not work.", hint="Renew them, then replay."
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
    otherwise=OwnCode("PERMANENT", line="Trying again does not help."),
)
"""The classes of error: network, time-outs, 5xx and rate limits heal; credentials need somebody at once; the rest stays.

`CLASSES.for_code` tells the class of what stands in an event or a dead letter; a code of our own is about a mail, and stays."""
