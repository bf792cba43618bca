# SPDX-License-Identifier: Apache-2.0
"""Criticizer's clients. None retries by itself: a failed call is a failed attempt, and redrive decides."""
