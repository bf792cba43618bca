# SPDX-License-Identifier: Apache-2.0
"""The model that labels: any endpoint with OpenAI's chat completions API, one request per call, with the client's own retries off.

Its error messages may quote the text, so only the status is kept of them.
"""

from __future__ import annotations

import logging
from typing import Annotated, Final

import msgspec
import openai

from apps.forge.example.codes import ANSWER_INVALID
from apps.forge.example.settings import Settings
from redrive import Fail

INSTRUCTIONS: Final = (
    "Label the message of a customer. Answer with JSON only: "
    '{"label": "question" | "complaint" | "praise" | "other", "confidence": a number from 0 to 1}.'
)
TIMEOUT_SECONDS: Final = 30.0
# These log whole requests at DEBUG, and URLs, which may contain a key, at INFO.
_VERBOSE: Final = ("openai", "httpx", "httpcore")


class Answer(msgspec.Struct, frozen=True):
    """What the model says about a text."""

    label: Annotated[str, msgspec.Meta(min_length=1, max_length=50)]
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Completion(msgspec.Struct):
    """The used fields of a chat completion; compatible servers differ in the rest."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]


# Made once: msgspec reads a type when it is first used, and crashes when several threads do that at the same time.
_COMPLETIONS: Final = msgspec.json.Decoder(_Completion)
_ANSWERS: Final = msgspec.json.Decoder(Answer)


class Model:
    """Labels texts."""

    def __init__(self, settings: Settings) -> None:
        for name in _VERBOSE:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._name = settings.llm_model
        self._client = openai.OpenAI(
            # Without a key the server refuses each sample, and the failure budget stops the run with that message.
            api_key=settings.llm_key or "none",
            base_url=settings.llm_url,
            max_retries=0,
            timeout=TIMEOUT_SECONDS,
        )

    def label(self, text: str) -> Answer:
        """Return the label of a text."""
        try:
            answer = self._client.chat.completions.with_raw_response.create(
                model=self._name,
                messages=[{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": text}],
                response_format={"type": "json_object"},
            )
        except openai.APIStatusError as error:
            # The classifier reads status and body; only the message, which is stored, is replaced.
            error.args = (f"the model's server answered {error.status_code}",)
            raise
        try:
            content = _COMPLETIONS.decode(answer.content).choices[0].message.content
            return _ANSWERS.decode(content or "")
        except msgspec.DecodeError as error:
            raise Fail(code=ANSWER_INVALID, message=f"the answer is not a label: {error}") from None

    def close(self) -> None:
        """Close its connections."""
        self._client.close()
