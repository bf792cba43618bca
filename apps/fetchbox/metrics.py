# SPDX-License-Identifier: Apache-2.0
"""What FetchBox counts itself, for Prometheus. Labels are bounded: codes, and the names of configured pools."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter

PUBLISHED: Final = Counter(
    "fetchbox_dead_letters_published", "Dead letters that the broker has acknowledged", ["code"]
)
DOWNLOADS: Final = Counter("fetchbox_downloads", "Downloads, by proxy pool and outcome", ["pool", "outcome"])
