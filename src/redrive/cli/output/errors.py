# SPDX-License-Identifier: Apache-2.0
"""How errors of redrive become messages and exit codes.

0 done; 1 the work itself failed, or what was asked for is not there; 2 the command was called wrongly; 3 what is left is held or
paused. A stack trace is never shown for what redrive itself refuses.
"""

from __future__ import annotations

from typing import Final

from redrive.cli.output.tables import say
from redrive.errors import ConfigurationError, RedriveError, SerializationError
from redrive.redaction.process import redact

DONE: Final = 0
FAILED: Final = 1
WRONG: Final = 2
HELD: Final = 3


def explain(error: RedriveError) -> int:
    """Say what went wrong and what to do next; return the exit code."""
    message = str(error)
    say(f"error: {redact(message)}")
    if error.hint and error.hint not in message:
        say(f"  {redact(error.hint)}")
    return WRONG if isinstance(error, ConfigurationError | SerializationError) else FAILED
