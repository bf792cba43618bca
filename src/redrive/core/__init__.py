# SPDX-License-Identifier: Apache-2.0
"""The failure core: what went wrong and what to do about it, as pure functions over frozen values.

Nothing in this folder does I/O, reads a clock, draws a random number, logs, reads the environment or knows asyncio: time is the
argument `now`, chance is the argument `draw`. `tests/test_tidy.py` and import-linter hold it to that.
"""
