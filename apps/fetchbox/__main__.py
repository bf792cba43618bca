# SPDX-License-Identifier: Apache-2.0
"""`python -m apps.fetchbox`."""

from __future__ import annotations

from apps.fetchbox.cli import main

if __name__ == "__main__":
    main()
