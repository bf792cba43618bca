# SPDX-License-Identifier: Apache-2.0
"""Secrets known by the name in front of them: assignments, headers, flags, blocks."""
