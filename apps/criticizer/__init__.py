# SPDX-License-Identifier: Apache-2.0
"""Criticizer: review a change, tell people.

    pipeline   the three stages fetch, llm, notify, and their policies
    codes      its failure codes, as data
    change     what is reviewed: orders, files, changed lines
    review     what a review is, and which parts of an answer are believed
    clients/   git and HTTP, the model, the linter, webhook and mail and terminal
    settings   what is read from the environment
    cli        the commands

It holds no failure handling of its own: stages raise, and redrive retries, keeps dead letters and replays.
"""
