# SPDX-License-Identifier: Apache-2.0
"""`redrive demo`: a faulty upstream, workers that are killed, an account of every job, and a replay."""
