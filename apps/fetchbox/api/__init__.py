# SPDX-License-Identifier: Apache-2.0
"""The HTTP interface: routes, submission of manifests, snapshots and logs of jobs, probes."""
