# SPDX-License-Identifier: Apache-2.0
"""placeholder"""
from __future__ import annotations
from typing import Final
from redrive.core.verdict import RuleTable
RULES: Final[RuleTable] = {}
