# SPDX-License-Identifier: Apache-2.0
"""Check the fields of a value against their types when it is created."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, get_type_hints

import msgspec
from msgspec import Meta

from redrive import ConfigurationError

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
Text = Annotated[str, Meta(pattern=r"\S")]
Instant = Annotated[datetime, Meta(tz=True)]


def check_fields(value: object, *, but: str = "") -> None:
    """Refuse a value with a field (except `but`) that does not fit its type; convert fields to their types."""
    for name, kind in get_type_hints(type(value), include_extras=True).items():
        if name == but:
            continue
        given = getattr(value, name)
        try:
            object.__setattr__(value, name, msgspec.convert(given, kind))
        except msgspec.ValidationError as error:
            raise refused(value, name, given, str(error)) from None


def check(value: object, name: str, given: object, rule: str, *, ok: bool) -> None:
    """Refuse a field that breaks a rule that no type can express.

    Raises:
        ConfigurationError: it does.
    """
    if not ok:
        raise refused(value, name, given, rule)


def refused(value: object, name: str, given: object, rule: str) -> ConfigurationError:
    """Return the error for a field; of a mapping it contains the keys only."""
    return ConfigurationError(
        field=f"{type(value).__name__}.{name}",
        value=sorted(map(str, given)) if isinstance(given, Mapping) else given,
        rule=rule,
        fix=f"{type(value).__module__} has the rules.",
    )
