# SPDX-License-Identifier: Apache-2.0
"""What operators do and ask: looking, pausing, breakers, checking, pruning, backups, migrations.

The command line and the console both call these; nothing here prints, asks or knows how an answer is shown.
Every change is logged with actor and reason, in the same transaction.
"""
