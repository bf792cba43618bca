# SPDX-License-Identifier: Apache-2.0
"""The example's code set, as data: what each code takes, whether it is retryable, and its texts for people."""

from __future__ import annotations

from typing import Final

from redrive import Category, CodeSet, OwnCode

ANSWER_INVALID: Final = "ANSWER_INVALID"
TEXT_TOO_LONG: Final = "TEXT_TOO_LONG"
"""Raised as `Fail(code)`: the sample or the answer is wrong, and a retry does not help."""

# Two lines per row, which the formatter would make nine.
# fmt: off
CODES: Final = CodeSet("forge", [
    OwnCode("KEY_INVALID", [Category.AUTH], category=Category.AUTH, retryable=False,
            line="The model's key was not accepted.", hint="Correct FORGE_LLM_KEY, then run forge reprocess."),
    OwnCode("QUOTA_EXHAUSTED", ["QUOTA_EXHAUSTED"], category=Category.RATE_LIMIT, retryable=False,
            line="The model's credit is used up.", hint="Raise the quota, then run forge reprocess."),
    OwnCode("RATE_LIMITED", [Category.RATE_LIMIT], category=Category.RATE_LIMIT, retryable=True,
            line="The model's server asks us to slow down.", hint="Lower the rate of the limit, then run forge reprocess."),
    OwnCode("MODEL_UNAVAILABLE", [range(500, 600), Category.UPSTREAM],  # A 501 is not retryable.
            line="The model's server failed.", hint="Check its status page, then run forge reprocess."),
    OwnCode("NETWORK", [Category.NETWORK], category=Category.NETWORK, retryable=True,
            line="The model's server could not be reached.", hint="Check FORGE_LLM_URL, then run forge reprocess."),
    OwnCode("MODEL_NOT_FOUND", [Category.NOT_FOUND], category=Category.NOT_FOUND, retryable=False,
            line="There is no such model.", hint="Correct FORGE_LLM_URL and FORGE_LLM_MODEL, then run forge reprocess."),
    OwnCode("CONTENT_REFUSED", ["REJECTED_POLICY"], category=Category.REJECTED, retryable=False,
            line="The model refused the sample.", hint="Look at the sample; correct or leave it."),
    OwnCode(TEXT_TOO_LONG, ["REQUEST_TOO_LARGE"], category=Category.VALIDATION, retryable=False,
            line="The text is too long.", hint="Split it in the input, and run again."),
    OwnCode(ANSWER_INVALID, category=Category.VALIDATION, retryable=False,
            line="The model's answer has the wrong form.", hint="Look at the prompt, then run forge reprocess."),
    OwnCode("SAMPLE_INVALID", [Category.VALIDATION], category=Category.VALIDATION, retryable=False,
            line="The sample has the wrong form.", hint="Correct it in the input, and run again."),
    OwnCode("CONFIG_INVALID", ["CONFIG_INVALID"], category=Category.BUG, retryable=False,
            line="The settings are wrong.", hint="Correct them, then run forge reprocess."),
], otherwise=OwnCode("STAGE_BUG", category=Category.BUG, retryable=False,
            line="A stage has a bug.", hint="Read the stack; fix the stage, then run forge reprocess."))
# fmt: on
