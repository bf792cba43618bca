# SPDX-License-Identifier: Apache-2.0
"""From `package.module:name` to the pipeline it names; the present folder is searched as well, as `python -m` does.

Whatever a module raises while it is imported ends as a message that names the file and line, not as a stack trace.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType

from redrive.engine.pipeline import Pipeline
from redrive.errors import ConfigurationError

_FIELD = "MODULE:PIPELINE"


def pipeline_named(target: str) -> Pipeline:
    """Import the pipeline that `module:name` names, or say what is wrong with the name."""
    module_name, separator, name = target.partition(":")
    if not separator or not module_name or not name:
        raise ConfigurationError(
            field=_FIELD,
            value=target,
            rule="must name a module and a pipeline",
            fix="shop.flows:orders, for example.",
        )
    module = _imported(module_name)
    found = getattr(module, name, None)
    if isinstance(found, Pipeline):
        return found
    known = [key for key, value in vars(module).items() if isinstance(value, Pipeline)]
    near = difflib.get_close_matches(name, known, n=1)
    fix = f"Its pipelines: {', '.join(known) or 'none'}."
    raise ConfigurationError(
        field=_FIELD,
        value=name,
        rule=f"is no pipeline of {module_name}",
        fix=f"Did you mean {near[0]}? {fix}" if near else fix,
    )


def pipelines_named(targets: list[str]) -> list[Pipeline]:
    """Import several pipelines; two of the same name are refused."""
    found = [pipeline_named(target) for target in targets]
    names = [pipeline.name for pipeline in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                field=_FIELD, value=name, rule="is given twice", fix="Name each pipeline once."
            )
    return found


def _imported(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _refused(name, f"There is no module {error.name}.{_near(error.name)}") from error
        raise _refused(name, _said(error)) from error
    except Exception as error:
        raise _refused(name, _said(error)) from error


def _refused(name: str, fix: str) -> ConfigurationError:
    return ConfigurationError(field=_FIELD, value=name, rule="cannot be imported", fix=fix)


def _near(name: str) -> str:
    here = [path.stem for path in Path().glob("*.py")]
    here += [path.parent.name for path in Path().glob("*/__init__.py")]
    near = difflib.get_close_matches(name, here, n=1)
    return f" Did you mean {near[0]}?" if near else f" It was looked for in {Path().absolute()} as well."


def _said(error: Exception) -> str:
    """Return what Python says about an import that failed, and where."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}."
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename != __file__
    ]
    own = [frame for frame in frames if "importlib" not in frame.filename]
    where = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
    return f"{where}{type(error).__name__}: {error}."
