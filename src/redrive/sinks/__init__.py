# SPDX-License-Identifier: Apache-2.0
"""Sinks: where dead letters go besides the store. `Pipeline(..., sinks=[Files("dead-letters")])`.

`base` says what a sink is, so that others can be written; `files` and `webhook` are two of them. When a letter is delivered, and
how often that is tried, is the engine's part. `safe_name` and `write_file` are what `Files` is made of, for sinks of your own.
"""

from redrive.sinks.base import Sink, SunkAttempt, SunkLetter
from redrive.sinks.files import Files, safe_name, write_file
from redrive.sinks.webhook import Webhook

__all__ = ["Files", "Sink", "SunkAttempt", "SunkLetter", "Webhook", "safe_name", "write_file"]
