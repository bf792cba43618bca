# SPDX-License-Identifier: Apache-2.0
"""`python -m apps.pdf2xml`."""

from __future__ import annotations

from apps.pdf2xml.cli import main

if __name__ == "__main__":
    main()
