# SPDX-License-Identifier: Apache-2.0
"""Replays: which dead letters, whether they may be released, and the driver that releases them."""
