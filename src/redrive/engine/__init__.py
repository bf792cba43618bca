# SPDX-License-Identifier: Apache-2.0
"""The imperative shell around the pure core: clocks, guard, pipelines, workers, runs, replays and delivery."""
