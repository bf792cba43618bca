# SPDX-License-Identifier: Apache-2.0
"""How an error becomes a message and an exit code.

0 done; 1 the work failed, or what was named does not exist; 2 wrong arguments or input; 3 what is left is held or paused.
An error of redrive's own never prints a stack trace.
"""

from __future__ import annotations

from typing import Final

from redrive.cli.output.tables import print_message
from redrive.errors import ConfigurationError, RedriveError, SerializationError
from redrive.redaction.process import redact

DONE: Final = 0
FAILED: Final = 1
WRONG: Final = 2
HELD: Final = 3


def print_error(error: RedriveError) -> int:
    """Print what went wrong and what to do next; return the exit code."""
    message = str(error)
    print_message(f"error: {redact(message)}")
    if error.hint and error.hint not in message:
        print_message(f"  {redact(error.hint)}")
    is_wrong = isinstance(error, ConfigurationError | SerializationError)
    return WRONG if is_wrong and not isinstance(error, LookupError) else FAILED
