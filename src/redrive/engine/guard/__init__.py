# SPDX-License-Identifier: Apache-2.0
"""Policy and breaker on one callable, in this process, with no store."""
