# SPDX-License-Identifier: Apache-2.0
"""The store on a PostgreSQL server."""
