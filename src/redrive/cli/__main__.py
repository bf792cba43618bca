# SPDX-License-Identifier: Apache-2.0
"""The command `redrive`; workers start further ones as `python -m redrive.cli`, whatever the command is called here.

The command line is imported here and not above: Ctrl-C while that takes its time ends without a stack trace.
"""

from __future__ import annotations

INTERRUPTED = 130
"""As shells report a command that SIGINT ended."""


def main() -> None:
    """Run the command line."""
    try:
        from redrive.cli.app import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
