# SPDX-License-Identifier: Apache-2.0
"""Peers that keep jobs in SQLite, each in the configuration its documentation gives for what is measured.

Where a peer can be driven in several ways, the fastest counts; the ways are named in its module. Prefect is left out: it is too heavy to
install for this, and was not measured.
"""
