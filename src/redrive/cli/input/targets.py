# SPDX-License-Identifier: Apache-2.0
"""From `package.module:name` to the pipeline it names; the present folder is searched as well, as `python -m` does.

Whatever a module raises while it is imported ends as a message that names the file and line, not as a stack trace. A name by which
the database knows no pipeline is answered with those that are near.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from redrive.cli.output.tables import say
from redrive.engine.pipeline.pipeline import Pipeline
from redrive.errors import ConfigurationError
from redrive.ops.pipelines import unknown_pipeline
from redrive.redaction.process import redact
from redrive.store.protocol import Store

_FIELD: Final = "MODULE:PIPELINE"
_OURS: Final = str(Path(__file__).parents[2])


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


def say_if_unknown(store: Store, pipeline: str | None) -> None:
    """Say so when the database knows no pipeline of this name, because nothing was found."""
    error = None if pipeline is None else unknown_pipeline(store, pipeline)
    if error is not None:
        say(str(error))


def _imported(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _refused(name, f"There is no module {error.name}.{_near(error.name)}") from error
        raise _refused(name, _said(error)) from error
    except SystemExit as error:
        said = f"{_where(error)}The module ended the program while it was imported: sys.exit({error.code!r})"
        raise _refused(name, f"{redact(said)}.") from error
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
    """Return what Python says about an import that failed, and where; a module may well name a secret in what it raises."""
    if isinstance(error, SyntaxError):
        said = f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    else:
        said = f"{_where(error)}{type(error).__name__}: {error}"
    return f"{redact(said).rstrip('.')}."


def _where(error: BaseException) -> str:
    """Return the last place in code that is not redrive's: what redrive refused is wrong where it was asked for."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen", _OURS)) and "importlib" not in frame.filename
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
