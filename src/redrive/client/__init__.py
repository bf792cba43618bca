# SPDX-License-Identifier: Apache-2.0
"""What a program holds: the connection, job handles, and one face per noun.

A face decides nothing: each of its methods calls one function of `ops` or `engine`, with `actor` and `reason` for the operator log.
"""
