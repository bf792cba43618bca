# SPDX-License-Identifier: Apache-2.0
"""Batches in a worker: jobs are gathered into calls, and a call is one slot."""
