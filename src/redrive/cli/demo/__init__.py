# SPDX-License-Identifier: Apache-2.0
"""`redrive demo`: an upstream that misbehaves, workers that are killed, the account, and a replay."""
