# SPDX-License-Identifier: Apache-2.0
"""Tests of CollabIQ, against servers on this machine that speak the providers' wire formats."""
