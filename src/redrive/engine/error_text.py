# SPDX-License-Identifier: Apache-2.0
"""Errors as a log may show them: the kind and what it says, redacted.

Never a traceback: that quotes the causes, which nobody has redacted, as they were raised.
"""

from __future__ import annotations

from collections.abc import Mapping

from redrive.core.classify import MESSAGE_MAX, message_of
from redrive.redaction.process import redact_start


def shown(error: BaseException, payload: Mapping[str, str] | None = None) -> str:
    """Return an error as a log may show it; `payload` maps further literals to what stands for them.

    One that cannot show itself, or be redacted, is named by its class: it must not stop whoever tells of it.
    """
    name = type(error).__name__
    try:
        return redact_start(f"{name}: {message_of(error)}", payload, read=MESSAGE_MAX)
    except Exception:  # noqa: BLE001 - see above.
        return name
