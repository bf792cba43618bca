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
    module, name = _split(target, _FIELD, "a pipeline", "shop.flows:orders")
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
    module, name = _split(target, option, "a function", "shop.fixes:fix_price")
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


def _split(target: str, field: str, what: str, example: str) -> tuple[ModuleType, str]:
    module, separator, name = target.partition(":")
    if not separator or not module or not name:
        raise ConfigurationError(
            field=field, value=target, rule=f"must name a module and {what}", fix=f"{example}, for example."
        )
    return _imported(module, field), name


def _imported(name: str, field: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _import_error(
                field, name, f"There is no module {error.name}. {_similar(error.name)}"
            ) from error
        raise _import_error(field, name, _reason(error)) from error
    except SystemExit as error:
        reason = f"{_where(error)}The module called sys.exit({error.code!r}) while it was imported"
        raise _import_error(field, name, f"{redact(reason)}.") from error
    except Exception as error:
        raise _import_error(field, name, _reason(error)) from error


def _import_error(field: str, name: str, fix: str) -> ConfigurationError:
    return ConfigurationError(field=field, value=name, rule="cannot be imported", fix=fix)


def _similar(name: str) -> str:
    here = [path.stem for path in Path().glob("*.py")]
    here += [path.parent.name for path in Path().glob("*/__init__.py")]
    return did_you_mean(name, here) or f"{Path().absolute()} was searched as well."


def _reason(error: Exception) -> str:
    """Return why an import failed, and where; redacted, because a module may put a secret into its message."""
    if isinstance(error, SyntaxError):
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
