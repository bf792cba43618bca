# SPDX-License-Identifier: Apache-2.0
"""The laboratory: choose a retry policy by evidence, from a simulated storm or from the attempts on record.

It changes nothing: a storm needs no database, and history is only read.
"""
