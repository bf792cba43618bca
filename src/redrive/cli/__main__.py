# SPDX-License-Identifier: Apache-2.0
"""`python -m redrive.cli`, which is how workers start further workers whatever the command is called here."""

from __future__ import annotations

from redrive.cli.app import main

main()
