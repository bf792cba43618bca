# SPDX-License-Identifier: Apache-2.0
"""Criticizer: review a change and notify people.

    pipeline   the three stages fetch, llm, notify, and their policies
    codes      its failure codes, as data
    change     what is reviewed: orders, files, changed lines
    review     a review, and how an answer is validated
    clients/   git and HTTP, the model, the linter, webhook and mail and terminal
    settings   settings from the environment
    cli        the commands

It has no failure handling of its own: stages raise, and redrive retries, keeps dead letters and replays.
"""
