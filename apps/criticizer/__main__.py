# SPDX-License-Identifier: Apache-2.0
"""`python -m apps.criticizer`."""

from __future__ import annotations

from apps.criticizer.cli import main

if __name__ == "__main__":
    main()
