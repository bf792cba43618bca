# SPDX-License-Identifier: Apache-2.0
"""Secrets known by their format: provider tokens, key blocks, credentials in URLs."""
