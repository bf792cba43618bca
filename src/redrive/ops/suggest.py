# SPDX-License-Identifier: Apache-2.0
"""Names that are near a wrong one, for messages that help."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from redrive.errors import ConfigurationError

SHOWN_MAX: Final = 10


def unknown(name: str, known: Iterable[str], *, kind: str, otherwise: str) -> ConfigurationError:
    """Return the error about a name nobody knows: with those that are near, or else with all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        fix = f"Did you mean {' or '.join(near)}?"
    elif names:
        rest = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        fix = f"Known here: {', '.join(names[:SHOWN_MAX])}{rest}."
    else:
        fix = otherwise
    return ConfigurationError(field=kind, value=name, rule="is not known here", fix=fix)
