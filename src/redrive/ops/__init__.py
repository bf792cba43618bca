# SPDX-License-Identifier: Apache-2.0
"""What operators do and ask: about jobs, dead letters, replays, runs, schedules, pipelines, breakers, limits and the database.

The command line and the faces of `client` both call these; nothing here prints, asks or knows how an answer is shown.
Every change is logged with actor and reason, in the same transaction.
"""
