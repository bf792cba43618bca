# SPDX-License-Identifier: Apache-2.0
"""Delivery of notices after the commit: hooks and sinks, at least once, from the outbox."""
