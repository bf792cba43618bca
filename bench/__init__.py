# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: redrive, its peers and the limits, side by side in one run, reported as ratios."""
