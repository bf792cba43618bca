# SPDX-License-Identifier: Apache-2.0
"""What several rule files use: how to read a foreign exception, and what numbers and statuses mean."""
