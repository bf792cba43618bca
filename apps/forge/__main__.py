# SPDX-License-Identifier: Apache-2.0
"""`python -m apps.forge`."""

from __future__ import annotations

from apps.forge.cli import main

if __name__ == "__main__":
    main()
