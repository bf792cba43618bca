# SPDX-License-Identifier: Apache-2.0
"""What Criticizer talks to. No client retries by itself: a failed call is a failed attempt, and redrive decides what follows."""
