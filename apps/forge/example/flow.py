# SPDX-License-Identifier: Apache-2.0
"""The spec of the example: normalise a text, label it by a model, embed it; then measure what came out.

Each stage has the policy that fits it: normalising is deterministic and gets one attempt; the model may be busy and gets five; the
embedder gets Forge's default.
"""

from __future__ import annotations

import contextlib
import re
import threading
import unicodedata
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import openai
from msgspec import Struct

from apps.forge.artifacts import Artifacts
from apps.forge.example.codes import CODES, TEXT_TOO_LONG
from apps.forge.example.embedding import Embedder, Vectors, embedder
from apps.forge.example.endpoint import LABELS
from apps.forge.example.model import Model
from apps.forge.example.settings import Settings
from apps.forge.measurements import Measured, measurement
from apps.forge.policy import policy, stage
from apps.forge.spec import Forge
from redrive import Batch, Fail, Limit, Skip

CHARACTERS_MAX: Final = 20_000
LETTERS_MIN: Final = 3
_SPACE: Final = re.compile(r"\s+")


MODEL: Final = Limit("forge-model", concurrency=32, adaptive=True)
"""Every endpoint has another limit: the rate is learnt from its answers, and a Retry-After pauses all samples."""


class Text(Struct, frozen=True):
    """A sample of the input."""

    text: str
    id: str = ""


class Clean(Struct, frozen=True):
    """A normalised text."""

    id: str
    text: str


class Labelled(Struct, frozen=True):
    """A text with what the model says about it."""

    id: str
    text: str
    label: str
    confidence: float


class Embedded(Struct, frozen=True):
    """A finished sample; its vector is a row of an artefact, not a value of its own."""

    id: str
    text: str
    label: str
    confidence: float
    vectors: str
    """The digest of an artefact with vectors."""
    row: int


@dataclass
class Clients:
    """What the stages of a worker share."""

    settings: Settings
    model: Model
    _embedder: Embedder | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a vector for each text; a real model is loaded when the first sample needs it."""
        with self._lock:
            if self._embedder is None:
                self._embedder = embedder(self.settings.embedder)
        return self._embedder.embed(texts)


@contextmanager
def open_clients() -> Generator[Clients]:
    """Open the clients for the settings in the environment."""
    settings = Settings.read()
    with contextlib.closing(Model(settings)) as model:
        yield Clients(settings, model)


@stage(retry=policy(1))
def normalise(sample: Text) -> Clean:
    """Bring a text into one form; filter one without words."""
    text = _SPACE.sub(" ", unicodedata.normalize("NFKC", sample.text)).strip()
    if sum(map(str.isalpha, text)) < LETTERS_MIN:
        raise Skip(reason="it has hardly any letters")
    if len(text) > CHARACTERS_MAX:
        raise Fail(code=TEXT_TOO_LONG, message=f"it has {len(text)} characters, {CHARACTERS_MAX} is the most")
    return Clean(sample.id, text)


@stage(
    retry=policy(
        5, base_delay=1, max_delay=30, retriable_errors=[429, 500, 502, 503, 504, openai.APIConnectionError]
    ),
    limits=MODEL,
    idempotent=True,
)
def label(sample: Clean, clients: Clients) -> Labelled:
    """Ask the model for a label."""
    answer = clients.model.label(sample.text)
    return Labelled(sample.id, sample.text, answer.label, answer.confidence)


@stage(batch=Batch(size=64, wait=0.2, on_error="split"), idempotent=True)
def embed(samples: list[Labelled], clients: Clients, artifacts: Artifacts) -> list[Embedded]:
    """Make the vectors of many samples at once, and keep them in one file."""
    digest = artifacts.keep(clients.embed([each.text for each in samples]).tobytes())
    return [
        Embedded(each.id, each.text, each.label, each.confidence, digest, row)
        for row, each in enumerate(samples)
    ]


@measurement()
def words(samples: Sequence[Measured], _: Artifacts) -> list[int]:
    """Count the words."""
    return [len(each.output.text.split()) for each in samples]


@measurement(after=["words"])
def diversity(samples: Sequence[Measured], _: Artifacts) -> list[float]:
    """Return the share of words that are not repeated."""
    return [
        len(set(each.output.text.lower().split())) / max(1, int(each.values["words"] or 0))
        for each in samples
    ]


@measurement()
def fit(samples: Sequence[Measured], artifacts: Artifacts) -> list[float]:
    """Return how similar the vector of a text is to the words that are typical for its label."""
    names = [*LABELS]
    typical = embedder("ngrams").embed([" ".join(LABELS[name]) for name in names])
    files = {each.output.vectors for each in samples}
    vectors = {digest: _vectors(artifacts.read(digest), typical.shape[1]) for digest in files}
    return [
        float(vectors[each.output.vectors][each.output.row] @ typical[names.index(each.output.label)])
        if each.output.label in names
        else 0.0
        for each in samples
    ]


@measurement(after=["words", "diversity", "fit"])
def quality(samples: Sequence[Measured], _: Artifacts) -> list[float]:
    """Return one number for a sample: confident, diverse, long enough, and close to its label."""
    return [
        round(
            each.output.confidence
            * float(each.values["diversity"] or 0)
            * min(1.0, float(each.values["words"] or 0) / 5)
            * (0.5 + 0.5 * max(0.0, float(each.values["fit"] or 0))),
            4,
        )
        for each in samples
    ]


def _vectors(content: bytes, dimensions: int) -> Vectors:
    return np.frombuffer(content, np.float32).reshape(-1, dimensions)


def shaping_settings() -> Mapping[str, object]:
    """Return the settings that shape the output; not where the model is."""
    settings = Settings.read()
    return {"model": settings.llm_model, "embedder": settings.embedder}


spec = Forge(
    name="forge-example",
    stages=[normalise, label, embed],
    measurements=[words, diversity, fit, quality],
    resources=[open_clients],
    codes=CODES,
    settings=shaping_settings,
    secrets=["FORGE_LLM_KEY"],
    libraries=["numpy", "openai"],
)
