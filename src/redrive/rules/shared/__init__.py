# SPDX-License-Identifier: Apache-2.0
"""Shared by several rule files: reading foreign exceptions, and tables of error numbers and statuses."""
