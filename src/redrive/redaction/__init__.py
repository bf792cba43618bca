# SPDX-License-Identifier: Apache-2.0
"""Remove secrets and personal data from texts and structures. Pure, except for `process`.

`text` runs rounds of passes until nothing changes; `structure` redacts mappings and sequences. The passes are grouped by how a
secret is recognised: `literals` by its known value, `formats` by its own format, `named` by the name in front of it, `personal` by
checksum and shape. `places` searches for all that is recognised by its surroundings. `process` adds the secrets of the environment
and registered ones.
"""

from __future__ import annotations

from redrive.redaction.literals.search import Literals
from redrive.redaction.placeholders import placeholder
from redrive.redaction.text import redact_text, redact_value

__all__ = ["Literals", "placeholder", "redact_text", "redact_value"]
