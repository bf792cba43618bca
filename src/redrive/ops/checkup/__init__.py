# SPDX-License-Identifier: Apache-2.0
"""The checks of `redrive doctor` and their findings."""
