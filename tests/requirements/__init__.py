# SPDX-License-Identifier: Apache-2.0
"""What the specifications ask of the engine, seen from outside."""
