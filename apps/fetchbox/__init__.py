# SPDX-License-Identifier: Apache-2.0
"""FetchBox: a manifest of resources in, objects in a bucket out.

    manifest       what a client posts, and its limits
    codes          the failure codes, as data
    settings       limits from the environment; job types, proxy pools and tenants from a file
    handlers       plug-ins that turn a manifest into tasks and add headers
    pipeline       the two stages download and upload, and their policies
    transfer/      addresses, proxies, downloads, object stores
    dead_letters/  the protobuf message, its sink, and a consumer
    api/           the routes, submission, snapshots, probes
    cli, demo      the commands

A FetchBox job is a run of redrive, its tasks are the jobs of that run. Nothing here retries, counts failures or moves jobs.
"""
