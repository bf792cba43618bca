# SPDX-License-Identifier: Apache-2.0
"""Takes secrets and personal facts out of texts and structures. Pure: what it does not get, it does not know.

Layout, in the order of a round: `marks` (placeholders), `literals` with `forms` and `kin` (known secrets), `pem` (private
keys), `runs` and `tokens` (provider tokens), `urls`, `commands` with `command_lines`, `assignments` with `carriers`, `plain`,
`judgement`, `bare`, `named`, `lines`, `spans`, `names`, `values` and `vocabulary` (values next to telling names),
`blocks` (values further down), `personal` with `phones` and `numbers`; `structure` walks mappings and sequences;
`text` runs the rounds; `near` finds what of many literals can stand in a text, `cuts` reads a part of a long one.
The environment and registered secrets are added by `redrive.redaction.process`.
"""

from __future__ import annotations

from redrive.redaction.literals.search import Literals
from redrive.redaction.placeholders import placeholder
from redrive.redaction.text import redact_text, redact_value

__all__ = ["Literals", "placeholder", "redact_text", "redact_value"]
