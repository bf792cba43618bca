# SPDX-License-Identifier: Apache-2.0
"""The model: any endpoint with OpenAI's chat completions API.

Its input is redacted. Its error messages may quote the input, so neither they nor the library's debug log are kept; only status,
provider code and request id are.
"""

from __future__ import annotations

import logging
from typing import Annotated, Final

import msgspec
import openai

from apps.criticizer.change import Change
from apps.criticizer.review import INSTRUCTIONS, Review, parse_answer, prompt_of
from apps.criticizer.settings import Settings
from redrive import Context, Fail

# These log whole requests at DEBUG, and URLs, which may contain a key, at INFO.
_VERBOSE: Final = ("openai", "httpx", "httpx2", "httpcore", "httpcore2")


def silence_client_logs() -> None:
    """Keep requests out of every log, whatever the root level."""
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(logging.WARNING)


class ModelReviewer:
    """Reviews with a model, one request per call."""

    def __init__(self, settings: Settings) -> None:
        self._model = settings.llm_model
        self._client = openai.OpenAI(
            api_key=settings.llm_key,
            base_url=settings.llm_url,
            max_retries=0,
            timeout=settings.timeout_seconds,
        )

    def review(self, change: Change, ctx: Context) -> Review:
        """Return the model's review of a change."""
        try:
            answer = self._client.chat.completions.with_raw_response.create(
                model=self._model,
                messages=[
                    {"role": "system", "content": INSTRUCTIONS},
                    {"role": "user", "content": prompt_of(change)},
                ],
                response_format={"type": "json_object"},
            )
        except openai.APIStatusError as error:
            # The classifier reads status and body; only the message, which is stored, is replaced.
            error.args = (f"the model's server answered {error.status_code}",)
            raise
        ctx.note("request_id", answer.request_id or "none")
        review = parse_answer(_content_of(answer.content), change, reviewer=self._model)
        ctx.note("findings_dropped", len(review.dropped))
        return review

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    """The used fields of a chat completion; compatible servers differ in the rest."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]


# Made once: msgspec reads a type when it is first used, and crashes when several threads do that at the same time.
_COMPLETIONS: Final = msgspec.json.Decoder(_Completion)


def _content_of(completion: bytes) -> str:
    """Return the model's answer; raises when it is empty, a refusal, or truncated."""
    try:
        choice = _COMPLETIONS.decode(completion).choices[0]
    except (msgspec.DecodeError, RecursionError) as error:
        raise Fail(code="SCHEMA_INVALID", message=f"the answer is not a chat completion: {error}") from None
    if choice.finish_reason == "content_filter" or choice.message.refusal:
        raise Fail(code="CONTENT_REJECTED", message="the model refused to review this change")
    if choice.finish_reason == "length":
        raise Fail(code="TOO_LARGE", message="the model stopped at its token limit")
    return choice.message.content or ""
