# SPDX-License-Identifier: Apache-2.0
"""What a program holds: the connection, job handles, and one face per noun."""
