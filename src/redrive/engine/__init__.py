# SPDX-License-Identifier: Apache-2.0
"""The imperative shell around the pure core: clocks, rule lookup, breakers that hold state, and `guard`."""
