# SPDX-License-Identifier: Apache-2.0
"""The example's settings from the environment: `FORGE_LLM_URL` and so on. They are never part of a sample."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Self

from redrive import ConfigurationError, register_secret

PREFIX: Final = "FORGE_"
SECRET_MIN: Final = 8
"""Shorter keys are not hidden: a private server may accept any word as a key, and hiding it would hide ordinary words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the model is, and what makes vectors."""

    llm_key: str = field(default="", repr=False)
    llm_url: str = "https://api.openai.com/v1"
    llm_model: str = "gpt-4o-mini"
    embedder: str = "ngrams"
    """`ngrams`, or a model of model2vec: a folder, or its name on the Hugging Face hub."""

    def __post_init__(self) -> None:
        if len(self.llm_key) >= SECRET_MIN:
            register_secret(self.llm_key)

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the settings of an environment; the key may also be `OPENAI_API_KEY`.

        Raises:
            ConfigurationError: a variable `FORGE_...` is not a setting.
        """
        names = {PREFIX + each.name.upper(): each.name for each in fields(cls)}
        for variable in environment:
            if variable.startswith(PREFIX) and variable not in names:
                near = difflib.get_close_matches(variable, names, n=1)
                raise ConfigurationError(
                    field=variable,
                    # The value may be a secret.
                    value="<not shown>",
                    rule="is not a setting",
                    fix=f"Did you mean {near[0]}?" if near else f"The settings are {', '.join(names)}.",
                )
        given = {name: value for variable, name in names.items() if (value := environment.get(variable))}
        given.setdefault("llm_key", environment.get("OPENAI_API_KEY", ""))
        return cls(**given)
