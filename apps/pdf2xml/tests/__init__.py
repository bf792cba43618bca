# SPDX-License-Identifier: Apache-2.0
"""The tests of Criticizer, against servers on this machine that speak what the real ones speak."""
