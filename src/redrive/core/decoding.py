# SPDX-License-Identifier: Apache-2.0
"""Types that several threads decode: what msgspec keeps about a class is made once, when its module is imported.

Two threads that decode a class for the first time at the same moment crash the process (seen with msgspec 0.22).
"""

from __future__ import annotations

import msgspec


def prepare(*types: type) -> None:
    """Let msgspec look at classes now."""
    for each in types:
        msgspec.json.Decoder(each)
