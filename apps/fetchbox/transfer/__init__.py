# SPDX-License-Identifier: Apache-2.0
"""How bytes move: which address, through which proxy, into a file, into an object store."""
