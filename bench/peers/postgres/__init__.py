# SPDX-License-Identifier: Apache-2.0
"""Queues and durable engines on PostgreSQL, each in a module: how it is filled, worked, and known to be done.

They run in an environment of their own (`make setup-bench`, pinned in `requirements.txt` here), because they bring other versions of
what redrive needs. So nothing here imports redrive.
"""
