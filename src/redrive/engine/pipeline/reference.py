# SPDX-License-Identifier: Apache-2.0
"""A pipeline by its name and its payloads: all that is needed to submit jobs to it, without the code of its stages.

What is known of its stages then is what a worker, or whoever submitted with the code, has recorded in the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from redrive.engine.pipeline.codec import Codec

if TYPE_CHECKING:
    # Defaults of type variables are newer than the oldest Python we support, and only type checkers need them.
    from typing_extensions import TypeVar

    In_contra = TypeVar("In_contra", contravariant=True, default=Any)
    Out_co = TypeVar("Out_co", covariant=True, default=object)
else:
    from typing import TypeVar

    In_contra = TypeVar("In_contra", contravariant=True)
    Out_co = TypeVar("Out_co", covariant=True)


@dataclass(frozen=True, eq=False, repr=False)
class PipelineRef(Generic[In_contra, Out_co]):
    """A pipeline by its name and its payloads. `Pipeline.ref` makes one; a `Pipeline` is one that has its code, too."""

    name: str
    payload: Codec
    """What its payloads are."""

    def __repr__(self) -> str:
        """Show the name."""
        return f"Pipeline.ref({self.name})"
