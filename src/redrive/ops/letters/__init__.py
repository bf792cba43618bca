# SPDX-License-Identifier: Apache-2.0
"""Use cases about dead letters: list, group, triage, edit, export, import."""
