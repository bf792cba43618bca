# SPDX-License-Identifier: Apache-2.0
"""Criticizer's code set, as data: what each code takes, whether trying again heals it, and what people are told.

What Criticizer itself refuses it raises as a `Fail` with one of these codes; its message never quotes a prompt or an answer. Names
that redrive has too mean the same here. What a row leaves open stays as redrive has it.
"""

from __future__ import annotations

from typing import Final

from redrive import Category, CodeSet, OwnCode, Retryable

# A table is read by the row: two lines each, which the formatter would make nine.
# fmt: off
CODES: Final = CodeSet("criticizer", [
    OwnCode("NETWORK_TIMEOUT", ["NETWORK_TIMEOUT", 504], category=Category.NETWORK, retryable=True,
            line="The other side took too long to answer.", hint="Check that it is up, then replay."),
    OwnCode("NETWORK_TRANSIENT", [Category.NETWORK], category=Category.NETWORK, retryable=True,
            line="The other side could not be reached.", hint="Check that it is up and its name is right, then replay."),
    OwnCode("QUOTA_EXHAUSTED", ["QUOTA_EXHAUSTED"], category=Category.RATE_LIMIT, retryable=False,
            line="The model's credit is used up.", hint="Raise the quota or the plan, then replay."),
    OwnCode("RATE_LIMITED", [Category.RATE_LIMIT], category=Category.RATE_LIMIT, retryable=True,
            line="The other side asks us to slow down.", hint="Run fewer reviews at once, then replay."),
    OwnCode("UPSTREAM_INTERNAL", [range(500, 600)], stages=["notify"], category=Category.UPSTREAM, retryable=True,
            line="The webhook failed by itself.", hint="Check its status page, then replay."),
    OwnCode("UPSTREAM_INTERNAL", [Category.UPSTREAM],  # What it does not support (501) stays so.
            line="The other side failed by itself.", hint="Check its status page, then replay."),
    OwnCode("WRITE_CONFLICT", [Category.CONFLICT], category=Category.CONFLICT, retryable=Retryable.IF_IDEMPOTENT,
            line="Another write got there first.", hint="Compare both writes, then replay."),
    OwnCode("TOO_LARGE", ["REQUEST_TOO_LARGE"], category=Category.VALIDATION, retryable=False,
            line="The change, or the review of it, is too large.", hint="Submit it in parts, and discard this letter."),
    OwnCode("SCHEMA_INVALID", [Category.VALIDATION], category=Category.VALIDATION, retryable=False,
            line="Something does not have the agreed form.", hint="Correct the order, or take another model, then replay."),
    OwnCode("AUTH_INVALID", ["AUTH_INVALID"], category=Category.AUTH, retryable=False,
            line="The key or the password was not accepted.", hint="Renew it in the worker's environment, then replay."),
    OwnCode("AUTH_DENIED", [Category.AUTH], category=Category.AUTH, retryable=False,
            line="Permission was denied.", hint="Grant it, or use a key that has it, then replay."),
    OwnCode("CHANGE_NOT_FOUND", [Category.NOT_FOUND], stages=["fetch"], category=Category.NOT_FOUND, retryable=False,
            line="The change is not there.", hint="Push it, or correct the order, then replay."),
    OwnCode("MODEL_NOT_FOUND", [Category.NOT_FOUND], stages=["llm"], category=Category.NOT_FOUND, retryable=False,
            line="The model is not there.", hint="Correct CRITICIZER_LLM_URL and CRITICIZER_LLM_MODEL, then replay."),
    OwnCode("DESTINATION_GONE", [Category.NOT_FOUND], stages=["notify"], category=Category.NOT_FOUND, retryable=False,
            line="Whom to tell is not there any more.", hint="Restore the destination or correct the order, then replay."),
    OwnCode("SOURCE_DENIED", category=Category.REJECTED, retryable=False,
            line="Patches may not come from this address.", hint="Add its host to CRITICIZER_HOSTS if it may, then replay."),
    OwnCode("CONTENT_REJECTED", ["REJECTED_POLICY"], category=Category.REJECTED, retryable=False,
            line="The model would not review this change.", hint="Look whether that was expected; discard, or replay."),
    OwnCode("LOCAL_TROUBLE", [Category.IO, Category.CAPACITY],  # Whether that heals, redrive knows: a full disk does not.
            line="The worker's own machine failed.", hint="Check its disk, memory and programs, then replay."),
    OwnCode("CONFIG_INVALID", ["CONFIG_INVALID", "TLS_CERTIFICATE"], category=Category.BUG, retryable=False,
            line="Criticizer is set up wrongly.", hint="Correct the settings or the certificate, then replay."),
    OwnCode("WORKER_CRASH", ["WORKER_CRASH"], category=Category.BUG, retryable=False,
            line="The process that ran it died.", hint="Look for memory or native crashes; fix, then replay."),
], otherwise=OwnCode("RUNTIME_BUG", category=Category.BUG, retryable=False,
            line="Criticizer made a mistake.", hint="Read the stack; fix the code, deploy, then replay."))
# fmt: on
