# SPDX-License-Identifier: Apache-2.0
"""Plain technical nouns that public classes are called by, besides the words of the glossary, each group with its reason.

A word belongs here if any programmer knows it without our documentation. A word that means something special in redrive
belongs into the glossary.
"""

from __future__ import annotations

PLAIN = {
    "kinds of values in any program": """
        error result report reports status state kind reason options setup parts set counts line page
        summary history details facts filter scope view change side limits plan step progress result response
        operation origin actor writer formatter value pair hint hints
    """,
    "time, chance and concurrency": """
        clock chance loop thread threads pool processes slots shell supervisor health heartbeat wait prefetch
        journal driver runner runtime ticker
    """,
    "calls and retries, as other libraries call them": """
        retry snooze fail cancel signal backoff jitter growth policy guard call severity retryable classifier
        phase sample crash context threshold thresholds history
    """,
    "databases": "store migration exchange renewal batch child",
    "texts": "literals span stack frame codec formatter placeholder",
    "files and networks": "files webhook upstream outage recipient",
    "operations": """
        preview validation finding obstacle candidate release stop finish explanation trend bucket account
        retention act draft move tally
    """,
    "tests": "conformance faults",
    "the name of the package": "redrive",
}


def plain_nouns() -> set[str]:
    """Return the listed words without their groups."""
    return {word for words in PLAIN.values() for word in words.split()}
