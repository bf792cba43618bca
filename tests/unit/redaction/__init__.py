# SPDX-License-Identifier: Apache-2.0
"""Tests of the redactor: what it must hide, what it must keep, and what it may cost."""
