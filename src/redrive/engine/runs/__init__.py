# SPDX-License-Identifier: Apache-2.0
"""Runs: many jobs from one source, under one failure budget."""
