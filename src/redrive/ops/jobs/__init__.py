# SPDX-License-Identifier: Apache-2.0
"""Use cases about jobs: list, look, explain, retry, erase."""
