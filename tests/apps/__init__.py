# SPDX-License-Identifier: Apache-2.0
"""What the five applications have in common, seen from outside."""
