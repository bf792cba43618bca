# SPDX-License-Identifier: Apache-2.0
"""`python -m apps.collabiq`."""

from apps.collabiq.cli import app

app(prog_name="collabiq")
