# SPDX-License-Identifier: Apache-2.0
"""The `redrive` command. Thin: it reads arguments, calls what is below, and shows the answer."""
