# SPDX-License-Identifier: Apache-2.0
"""Find secrets by the name in front of them: assignments, headers, flags, blocks."""
