# SPDX-License-Identifier: Apache-2.0
"""A Forge spec: where samples come from, the stages they go through, and how they are measured.

Declared in Python, and found by `module:name` or `file.py:name`. A spec runs nothing by itself.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final

from apps.forge.artifacts import Artifacts
from apps.forge.measurements import Measurement, in_order
from redrive import CodeSet, ConfigurationError, Event, FailureBudget, Pipeline, ReplayRules, redact
from redrive.core.budget import RunThresholds
from redrive.engine.pipeline.pipeline import Resource
from redrive.engine.pipeline.stage import Stage

_FIELD: Final = "SPEC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forge:
    """A spec. Runs with the same spec, input and code can be reproduced; the manifest records all of it."""

    name: str
    stages: Sequence[Stage[..., object]]
    source: Callable[[], Iterable[object]] | None = None
    """A generator of samples, for runs without an input file; it yields the same samples whenever it is called."""
    measurements: Sequence[Measurement] = ()
    resources: Sequence[Resource] = ()
    """Functions that open what stages share, such as clients; see `redrive.Pipeline`."""
    codes: CodeSet | None = None
    settings: Callable[[], Mapping[str, object]] = dict
    """What else shapes the output, such as the name of a model; secrets do not belong here."""
    secrets: Sequence[str] = ()
    """The names of the environment variables with secrets."""
    libraries: Sequence[str] = ()
    """The distributions whose versions are recorded, besides those of Forge itself."""
    failure_budget: FailureBudget = field(default_factory=FailureBudget)
    thresholds: RunThresholds = field(default_factory=RunThresholds)

    def __post_init__(self) -> None:
        in_order(self.measurements)
        self.pipeline(Artifacts(Path()))

    def pipeline(self, artifacts: Artifacts, on_event: Callable[[Event], None] | None = None) -> Pipeline:
        """Return the pipeline of its stages, which keep artefacts here; `on_event` gets every retry, hold and dead letter."""
        return Pipeline(
            self.name,
            self.stages,
            resources=[lambda: nullcontext(artifacts), *self.resources],
            on_retry=on_event,
            on_hold=on_event,
            on_dead=on_event,
            # Whoever reprocesses has fixed the stage: the manifest records what changed, and the operator log who did it.
            replay=ReplayRules(evidence="optional"),
            codes=self.codes,
        )

    def check_stage(self, name: str) -> str:
        """Return the name of a stage; refuse one that the spec does not have, with the name that is most similar."""
        names = [each.name for each in self.stages]
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            fix = f"Did you mean {near[0]}? " if near else ""
            raise ConfigurationError(
                field="--stage",
                value=name,
                rule=f"is not a stage of {self.name}",
                fix=f"{fix}Its stages: {', '.join(names)}.",
            )
        return name


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec with the text it was found by, and the file that declares it."""

    spec: Forge
    target: str
    file: Path | None


def load_spec(target: str) -> LoadedSpec:
    """Import the spec that `module:name` or `file.py:name` names.

    Raises:
        ConfigurationError: it cannot be imported, or there is no such spec; with file and line where there is one.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name:
        raise ConfigurationError(
            field=_FIELD,
            value=target,
            rule="must name a module or a file, and a spec in it",
            fix="apps.forge.example.flow:spec or my_flow.py:spec, for example.",
        )
    module = _imported(place)
    found = getattr(module, name, None)
    if isinstance(found, Forge):
        file = getattr(module, "__file__", None)
        is_file = place.endswith(".py")
        return LoadedSpec(
            found,
            f"{Path(place).absolute()}:{name}" if is_file else target,
            None if file is None else Path(file),
        )
    known = [key for key, value in vars(module).items() if isinstance(value, Forge)]
    near = difflib.get_close_matches(name, known, n=1)
    fix = f"Its specs: {', '.join(known) or 'none'}."
    raise ConfigurationError(
        field=_FIELD,
        value=name,
        rule=f"is not a spec of {place}",
        fix=f"Did you mean {near[0]}? {fix}" if near else fix,
    )


def _imported(place: str) -> ModuleType:
    """Import a module or a file; whatever it raises ends as a message."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ConfigurationError as error:
        raise _import_error(place, f"{_where(error)}{error}") from error
    except (Exception, SystemExit) as error:
        reason = f"{_where(error)}{type(error).__name__}: {error}"
        if isinstance(error, SyntaxError):
            reason = f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
        raise _import_error(place, f"{redact(reason).rstrip('.')}.") from error


def _from_file(path: Path) -> ModuleType:
    # Named by its place: stages refer to their module by name, and two files may have one name.
    name = "forge_spec_" + "_".join(path.absolute().with_suffix("").parts[1:])
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        problem = f"there is no file {path}"
        raise FileNotFoundError(problem)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_error(place: str, fix: str) -> ConfigurationError:
    return ConfigurationError(field=_FIELD, value=place, rule="cannot be imported", fix=fix)


def _where(error: BaseException) -> str:
    """Return the last place in the spec's own code."""
    own = (str(Path(__file__).parent), str(Path(redact.__code__.co_filename).parents[1]))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", *own)) and "importlib" not in frame.filename
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
