# SPDX-License-Identifier: Apache-2.0
"""Applications built on redrive, each in its own package, as runnable examples."""
