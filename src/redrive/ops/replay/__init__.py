# SPDX-License-Identifier: Apache-2.0
"""Use cases about replays: validate, start, pause, report, close."""
