# SPDX-License-Identifier: Apache-2.0
"""Criticizer's code set, as data: what each code takes, whether it is retryable, and its texts for people.

Criticizer's own refusals are a `Fail` with one of these codes; the message never quotes a prompt or an answer. Names that redrive
also has mean the same here. A row keeps redrive's value for what it does not set.
"""

from __future__ import annotations

from typing import Final

from redrive import Category, CodeSet, OwnCode, Retryable

# Two lines per row, which the formatter would make nine.
# fmt: off
CODES: Final = CodeSet("criticizer", [
    OwnCode("NETWORK_TIMEOUT", ["NETWORK_TIMEOUT", 504], category=Category.NETWORK, retryable=True,
            line="The server took too long to answer.", hint="Check that it is up, then replay."),
    OwnCode("NETWORK_TRANSIENT", [Category.NETWORK], category=Category.NETWORK, retryable=True,
            line="The server could not be reached.", hint="Check that it is up and its name is right, then replay."),
    OwnCode("QUOTA_EXHAUSTED", ["QUOTA_EXHAUSTED"], category=Category.RATE_LIMIT, retryable=False,
            line="The model's credit is used up.", hint="Raise the quota or the plan, then replay."),
    OwnCode("RATE_LIMITED", [Category.RATE_LIMIT], category=Category.RATE_LIMIT, retryable=True,
            line="The server asks us to slow down.", hint="Run fewer reviews at once, then replay."),
    OwnCode("UPSTREAM_INTERNAL", [range(500, 600)], stages=["notify"], category=Category.UPSTREAM, retryable=True,
            line="The webhook's server failed.", hint="Check its status page, then replay."),
    OwnCode("UPSTREAM_INTERNAL", [Category.UPSTREAM],  # A 501 is not retryable.
            line="The server failed.", hint="Check its status page, then replay."),
    OwnCode("WRITE_CONFLICT", [Category.CONFLICT], category=Category.CONFLICT, retryable=Retryable.IF_IDEMPOTENT,
            line="It conflicts with another write.", hint="Compare both writes, then replay."),
    OwnCode("TOO_LARGE", ["REQUEST_TOO_LARGE"], category=Category.VALIDATION, retryable=False,
            line="The change, or the review of it, is too large.", hint="Submit it in parts, and discard this letter."),
    OwnCode("SCHEMA_INVALID", [Category.VALIDATION], category=Category.VALIDATION, retryable=False,
            line="Some content has the wrong form.", hint="Correct the order, or take another model, then replay."),
    OwnCode("AUTH_INVALID", ["AUTH_INVALID"], category=Category.AUTH, retryable=False,
            line="The key or the password was not accepted.", hint="Renew it in the worker's environment, then replay."),
    OwnCode("AUTH_DENIED", [Category.AUTH], category=Category.AUTH, retryable=False,
            line="Permission was denied.", hint="Grant it, or use a key that has it, then replay."),
    OwnCode("CHANGE_NOT_FOUND", [Category.NOT_FOUND], stages=["fetch"], category=Category.NOT_FOUND, retryable=False,
            line="The change does not exist.", hint="Push it, or correct the order, then replay."),
    OwnCode("MODEL_NOT_FOUND", [Category.NOT_FOUND], stages=["llm"], category=Category.NOT_FOUND, retryable=False,
            line="The model does not exist.", hint="Correct CRITICIZER_LLM_URL and CRITICIZER_LLM_MODEL, then replay."),
    OwnCode("DESTINATION_GONE", [Category.NOT_FOUND], stages=["notify"], category=Category.NOT_FOUND, retryable=False,
            line="The recipient no longer exists.", hint="Restore it, or correct notify with dlq edit, then replay."),
    OwnCode("SOURCE_DENIED", category=Category.REJECTED, retryable=False,
            line="Patches may not come from this address.", hint="Add its host to CRITICIZER_HOSTS if it may, then replay."),
    OwnCode("DESTINATION_DENIED", category=Category.REJECTED, retryable=False,
            line="Reviews may not be sent to this address.",
            hint="Add its host to CRITICIZER_WEBHOOK_HOSTS if it may, or correct notify with dlq edit, then replay."),
    OwnCode("CONTENT_REJECTED", ["REJECTED_POLICY"], category=Category.REJECTED, retryable=False,
            line="The model refused to review this change.", hint="Check whether that was expected; discard, or replay."),
    OwnCode("LOCAL_TROUBLE", [Category.IO, Category.CAPACITY],  # redrive decides whether it is retryable: a full disk is not.
            line="The worker's own machine failed.", hint="Check its disk, memory and programs, then replay."),
    OwnCode("CONFIG_INVALID", ["CONFIG_INVALID", "TLS_CERTIFICATE"], category=Category.BUG, retryable=False,
            line="Criticizer is not configured correctly.", hint="Correct the settings or the certificate, then replay."),
    OwnCode("WORKER_CRASH", ["WORKER_CRASH"], category=Category.BUG, retryable=False,
            line="The process that ran it died.", hint="Look for memory limits and native crashes; fix them, then replay."),
], otherwise=OwnCode("RUNTIME_BUG", category=Category.BUG, retryable=False,
            line="Criticizer has a bug.", hint="Read the stack; fix the code, deploy, then replay."))
# fmt: on
