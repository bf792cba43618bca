# SPDX-License-Identifier: Apache-2.0
"""Applications built on redrive, each a package of its own to run and to learn from."""
