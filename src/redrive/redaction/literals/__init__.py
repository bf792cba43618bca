# SPDX-License-Identifier: Apache-2.0
"""Find known secrets: values from the process, a caller or a job, in every common encoding."""
