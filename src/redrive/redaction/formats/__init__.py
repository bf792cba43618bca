# SPDX-License-Identifier: Apache-2.0
"""Secrets recognised by their format: provider tokens, key blocks, credentials in URLs."""
