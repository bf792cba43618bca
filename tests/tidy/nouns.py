# SPDX-License-Identifier: Apache-2.0
"""Plain technical nouns that public classes are called by, besides the words of the glossary, each group with its reason.

A word belongs here if any programmer knows it without our documentation. A word that means something special in redrive
belongs into the glossary.
"""

from __future__ import annotations

PLAIN = {
    "kinds of values in any program": """
        error result report status state kind reason options setup parts set counts line page summary history details facts
        filter scope view change side limits plan step progress response operation origin actor reader writer formatter pair hint
        index tracker builder choice face entry cache meaning action ref shape
    """,
    "time, chance and concurrency": """
        clock chance loop thread lock pool processes slots shell supervisor health heartbeat wait prefetch journal driver runner
        runtime ticker
    """,
    "retries and breakers, as other libraries call them": """
        retry snooze fail cancel signal backoff jitter growth guard call severity retryable classifier phase sample crash
        context thresholds cell meter triggers
    """,
    "decisions and answers, named by what happens": "retry at, ended, admitted, refused, submitted, claimed, budget exceeded, interruption, release, stop, finish",
    "databases": "store statement snapshot maintenance migration exchange request renewal batch child rule continuation work address server connection column bigints doubles texts transaction transactions",
    "submission and delivery": "submission delivery recipient",
    "texts": "literals span stack frame codec syntax sentinels redactor",
    "files and networks": "files webhook nats upstream outage console problem body session middleware",
    "measurements": "labels readings durations place log",
    "operations": """
        preview validation finding obstacle candidate explanation trend bucket account retention draft move tally
    """,
    "the conformance suite": "conformance tests",
    "tests and the demo": "faults scene script article",
    "the name of the package": "redrive",
}


def plain_nouns() -> set[str]:
    """Return the listed words without their groups."""
    return {
        word for words in PLAIN.values() for word in (words.split(", ") if "," in words else words.split())
    }
