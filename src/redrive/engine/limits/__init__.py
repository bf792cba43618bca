# SPDX-License-Identifier: Apache-2.0
"""Limits as a worker keeps them: how much it may claim of each lane, and of which keys."""
