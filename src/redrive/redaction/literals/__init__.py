# SPDX-License-Identifier: Apache-2.0
"""Known secrets: the values that a process, a caller or a job names, found in every encoding they may take."""
