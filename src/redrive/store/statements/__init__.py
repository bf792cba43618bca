# SPDX-License-Identifier: Apache-2.0
"""What is asked of a store and changed in it, declared once: one module for each room.

A module has only what its statements take and return. Their texts are in the SQL file of its name, here and in each dialect.
"""
