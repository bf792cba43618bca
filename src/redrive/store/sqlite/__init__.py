# SPDX-License-Identifier: Apache-2.0
"""The embedded store: one SQLite file, for one machine."""
