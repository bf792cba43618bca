# SPDX-License-Identifier: Apache-2.0
"""Sinks: places outside the store that receive every change of a dead letter. `Pipeline(..., sinks=[Files("dead-letters")])`.

`base` has the interface of a sink; `files`, `webhook` and `nats` implement it. The engine decides when a change is delivered, and
how often that is tried. `safe_name` and `write_file` are parts of `Files` for sinks of your own.
"""

from redrive.sinks.base import BreakerChange, Sink, SunkLetter
from redrive.sinks.files import Files, safe_name, write_file
from redrive.sinks.nats import Nats
from redrive.sinks.webhook import Webhook
from redrive.store.statements.outbox import SunkAttempt

__all__ = [
    "BreakerChange",
    "Files",
    "Nats",
    "Sink",
    "SunkAttempt",
    "SunkLetter",
    "Webhook",
    "safe_name",
    "write_file",
]
