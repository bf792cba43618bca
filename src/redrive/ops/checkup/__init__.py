# SPDX-License-Identifier: Apache-2.0
"""The checkup behind `redrive doctor`: what is looked at, and what it finds."""
