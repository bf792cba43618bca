# SPDX-License-Identifier: Apache-2.0
"""The example: text samples are normalised, labelled by a model, embedded and measured.

flow       the spec: three stages, with their policies, and the measurements
codes      its failure codes, as data
model      the client of the model, over OpenAI's API
embedding  vectors from character n-grams, or from a real model
settings   settings from the environment
endpoint   a local server with OpenAI's API, a real rate limit and faults, for the demo and the tests
demo       makes samples, starts the server, and runs
"""
