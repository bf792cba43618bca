# SPDX-License-Identifier: Apache-2.0
"""Forge: samples through ML stages, run by run, with every sample accounted for.

    spec          a spec: source, stages, measurements; `policy` has Forge's retry policies
    sources       samples from JSON lines, CSV and Parquet files
    work          run, resume, pause, reprocess, measure, report
    outputs       a line per sample, in order, while the run works; `tables` writes Parquet
    artifacts     large values as files named by their content
    measurements  values about finished samples, kept by (sample, name, version)
    manifest      what was run, its hash, and how two runs differ
    stats         retries, failures and stages, as data and as a picture
    folder        the files of a run
    cli           the `forge` command
    example/      text samples: normalise, label by a model, embed, measure

Stages raise, and redrive does the rest: retries, dead letters, the failure budget, the account, resuming and replaying.
"""
