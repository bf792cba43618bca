# SPDX-License-Identifier: Apache-2.0
"""Commands for working on redrive itself; nothing here is installed with it."""
