# SPDX-License-Identifier: Apache-2.0
"""The worker: claim, run, decide, settle, commit; and everything around it that keeps it alive."""
