# SPDX-License-Identifier: Apache-2.0
"""Keeping a database well: backup, pruning, migrations, and where it is."""
