# SPDX-License-Identifier: Apache-2.0
"""Values that keep their rules: the types of a class's fields say what each may be, and anything else is refused at once."""

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
    """Refuse a value of which a field, `but` for one, does not fit its type; what fits is kept as that type."""
    for name, kind in get_type_hints(type(value), include_extras=True).items():
        if name == but:
            continue
        given = getattr(value, name)
        try:
            object.__setattr__(value, name, msgspec.convert(given, kind))
        except msgspec.ValidationError as error:
            raise refused(value, name, given, str(error)) from None


def check(value: object, name: str, given: object, rule: str, *, ok: bool) -> None:
    """Refuse what breaks a rule that no type can say.

    Raises:
        ConfigurationError: it does.
    """
    if not ok:
        raise refused(value, name, given, rule)


def refused(value: object, name: str, given: object, rule: str) -> ConfigurationError:
    """Return the error for a field; of a mapping it shows the keys only."""
    return ConfigurationError(
        field=f"{type(value).__name__}.{name}",
        value=sorted(map(str, given)) if isinstance(given, Mapping) else given,
        rule=rule,
        fix=f"{type(value).__module__} has the rules.",
    )
