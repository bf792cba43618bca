# SPDX-License-Identifier: Apache-2.0
"""What commands read: options, filters, files, durations, targets."""
