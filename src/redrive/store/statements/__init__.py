# SPDX-License-Identifier: Apache-2.0
"""What is asked of a store and changed in it, declared once: one module for each room, like the SQL files of the dialects."""
