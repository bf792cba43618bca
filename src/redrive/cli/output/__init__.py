# SPDX-License-Identifier: Apache-2.0
"""What commands show: tables, JSON, errors, the terminal."""
