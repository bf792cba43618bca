# SPDX-License-Identifier: Apache-2.0
"""Where jobs are stored: the protocol, its records, and the stores that implement it.

A store keeps what it is given and enforces the invariants; it decides nothing. Nothing in this folder knows stages, policies or
workers.
"""
