# SPDX-License-Identifier: Apache-2.0
"""Imports the pipeline or the function that `package.module:name` names; the current folder is searched, too, as `python -m` does.

Whatever a module raises while it is imported ends as a message with file and line, not as a stack trace.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, cast

from redrive.core.arguments import did_you_mean
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.errors import ConfigurationError
from redrive.redaction.process import redact

_FIELD: Final = "MODULE:PIPELINE"
_PACKAGE: Final = str(Path(__file__).parents[2])


def import_pipeline(target: str) -> Pipeline:
    """Import the pipeline that `module:name` names."""
    module, name = _imported(target, _FIELD, "a pipeline", "shop.flows:orders")
    found = getattr(module, name, None)
    if isinstance(found, Pipeline):
        return cast("Pipeline", found)
    known = [key for key, value in vars(module).items() if isinstance(value, Pipeline)]
    fix = f"{did_you_mean(name, known)} Its pipelines: {', '.join(known) or 'none'}."
    raise ConfigurationError(
        field=_FIELD,
        value=name,
        rule=f"is not a pipeline of {module.__name__}",
        fix=fix.lstrip(),
    )


def import_pipelines(targets: list[str] | None) -> list[Pipeline]:
    """Import several pipelines; refuse two of the same name."""
    found = [import_pipeline(target) for target in targets or ()]
    names = [pipeline.name for pipeline in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                field=_FIELD, value=name, rule="is given twice", fix="Name each pipeline once."
            )
    return found


def import_function(target: str, option: str) -> Callable[[object], object]:
    """Import the function that `module:name` names; refuse what cannot be called, or has to be awaited."""
    module, name = _imported(target, option, "a function", "shop.fixes:fix_price")
    found = getattr(module, name, None)
    if callable(found) and not inspect.iscoroutinefunction(found):
        return cast("Callable[[object], object]", found)
    known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
    raise ConfigurationError(
        field=option,
        value=name,
        rule=f"is not a function of {module.__name__} that can be called without await",
        fix=f"Its functions: {', '.join(known) or 'none'}.",
    )


def _imported(target: str, field: str, what: str, example: str) -> tuple[ModuleType, str]:
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigurationError(
            field=field, value=target, rule=f"must name a module and {what}", fix=f"{example}, for example."
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return import_module(module), name
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            field=field, value=module, rule="cannot be imported", fix=_reason(module, error)
        ) from error


def _similar(name: str) -> str:
    here = [path.stem for path in Path().glob("*.py")]
    here += [path.parent.name for path in Path().glob("*/__init__.py")]
    return did_you_mean(name, here) or f"{Path().absolute()} was searched as well."


def _reason(name: str, error: BaseException) -> str:
    """Return why an import failed, and where; redacted, because a module may put a secret into its message."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and f"{name}.".startswith(f"{missing}."):
        return f"There is no module {missing}. {_similar(missing)}"
    if isinstance(error, SystemExit):
        reason = f"{_where(error)}The module called sys.exit({error.code!r}) while it was imported"
    elif isinstance(error, SyntaxError):
        reason = f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    else:
        reason = f"{_where(error)}{type(error).__name__}: {error}"
    return f"{redact(reason).rstrip('.')}."


def _where(error: BaseException) -> str:
    """Return the last place in code that is not redrive's own: an error of redrive is to be fixed where it was called."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen", _PACKAGE)) and "importlib" not in frame.filename
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
