# SPDX-License-Identifier: Apache-2.0
"""What comes from outside, made of anything: whoever reads it answers, or refuses it with an error of redrive's."""
