# SPDX-License-Identifier: Apache-2.0
"""Vectors for texts: hashed character n-grams, which need nothing but numpy; or a real model, loaded when it is first used.

Texts with many n-grams in common have similar vectors. Every vector has length one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from redrive import ConfigurationError

Vectors = NDArray[np.float32]

DIMENSIONS: Final = 256
SIZES: Final = (3, 4)
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)


class Embedder(Protocol):
    """Makes a vector for each text."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a row for each text, in their order."""
        ...


class NgramEmbedder:
    """Counts the n-grams of a text, each in the place and with the sign that its hash gives."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a row for each text, in their order."""
        return np.stack([_vector(text) for text in texts]) if texts else np.zeros((0, DIMENSIONS), np.float32)


def _vector(text: str) -> Vectors:
    points = np.frombuffer(f" {text.lower()} ".encode("utf-32-le", "replace"), dtype=np.uint32).astype(
        np.uint64
    )
    made = np.zeros(DIMENSIONS)
    for size in SIZES:
        if len(points) < size:
            continue
        hashed = np.zeros(len(points) - size + 1, np.uint64)
        for place in range(size):
            hashed = (hashed ^ points[place : len(hashed) + place]) * _MULTIPLIER
        signs = 1.0 - 2.0 * ((hashed >> np.uint64(63)) & np.uint64(1)).astype(np.float64)
        places = ((hashed >> np.uint64(32)) % np.uint64(DIMENSIONS)).astype(np.int64)
        made += np.bincount(places, weights=signs, minlength=DIMENSIONS)
    length = float(np.linalg.norm(made))
    return (made / length if length else made).astype(np.float32)


class ModelEmbedder:
    """A model of model2vec, from a folder or by its name on the Hugging Face hub."""

    def __init__(self, name: str) -> None:
        try:
            from model2vec import StaticModel
        except ImportError as error:
            raise ConfigurationError(
                field="FORGE_EMBEDDER",
                value=name,
                rule="needs the package model2vec",
                fix="pip install 'redrive[embeddings]'; or leave FORGE_EMBEDDER out for n-grams.",
            ) from error
        try:
            self._model = StaticModel.from_pretrained(name, normalize=True)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                field="FORGE_EMBEDDER",
                value=name,
                rule="is neither the folder of a model nor one that can be downloaded",
                fix="Give a folder that model2vec wrote, or check the name and the network.",
            ) from error

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a row for each text, in their order."""
        return np.asarray(self._model.encode(list(texts)), np.float32)


def embedder(name: str) -> Embedder:
    """Return the embedder with this name: `ngrams`, or a model of model2vec."""
    return NgramEmbedder() if name == "ngrams" else ModelEmbedder(name)
