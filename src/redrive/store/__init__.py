# SPDX-License-Identifier: Apache-2.0
"""Where jobs live: the seam (`protocol`) and what stands behind it.

A store keeps what it is given and enforces the invariants; it decides nothing. Nothing in this folder knows stages, policies or
workers.
"""
