# SPDX-License-Identifier: Apache-2.0
"""What many attempts add up to, as numbers and as pictures."""
