# SPDX-License-Identifier: Apache-2.0
"""The manifest of a run: what was run, under which settings and code, and how it ended.

`hash` covers what a run is made of (input, stages, measurements, settings, code, libraries, the names of secrets). It does not
depend on times, counts, paths or the order of keys, so two runs with one hash are the same run.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec

from apps.forge.folder import RunFolder, write_file
from apps.forge.measurements import in_order, source_digest
from apps.forge.spec import Forge, LoadedSpec
from redrive import ConfigurationError, Limit, RunReport, redact_mapping
from redrive.engine.pipeline.stage import Stage

FORMAT: Final = 1
HASHED: Final = (
    "name",
    "input",
    "stages",
    "measurements",
    "settings",
    "rules",
    "code",
    "libraries",
    "secrets",
)
"""The parts that make a run what it is."""
LIBRARIES: Final = ("redrive", "msgspec", "pyarrow")

Manifest = dict[str, Any]


def new_manifest(loaded: LoadedSpec, source: Mapping[str, object], place: Mapping[str, object]) -> Manifest:
    """Return the manifest of a run that starts now; `source` describes the input, `place` how to find it again."""
    spec = loaded.spec
    made: Manifest = {
        "format": FORMAT,
        "name": spec.name,
        "spec": loaded.target,
        "source": dict(place),
        "input": dict(source),
        "stages": {
            each.name: {"place": place, **stage_facts(each)} for place, each in enumerate(spec.stages, 1)
        },
        "measurements": measurement_facts(spec),
        "settings": redact_mapping(spec.settings()),
        "rules": {
            "failure_budget": msgspec.to_builtins(spec.failure_budget),
            "thresholds": msgspec.to_builtins(spec.thresholds),
        },
        "code": code_facts(loaded.file),
        "libraries": {
            "python": platform.python_version(),
            **{name: _version(name) for name in (*LIBRARIES, *spec.libraries)},
        },
        "secrets": sorted(spec.secrets),
        "started_at": _now(),
        "ended_at": None,
        "status": "running",
        "counts": {},
        "changed": [],
        "reprocessed": [],
    }
    # As it will be read back: tuples are lists by then.
    made = msgspec.json.decode(msgspec.json.encode(made))
    return {**made, "hash": hash_of(made)}


def measurement_facts(spec: Forge) -> dict[str, object]:
    """Return the versions of the measurements, and what they depend on."""
    return {
        each.name: {"version": each.version, "after": list(each.after), "code": each.code}
        for each in in_order(spec.measurements)
    }


def stage_facts(stage: Stage[..., object]) -> dict[str, object]:
    """Return the settings of a stage, readable; `config` is the hash that redrive stores with every attempt."""
    backoff = stage.retry.backoff
    on = stage.retry.retry_on
    return {
        "config": stage.config,
        "code": source_digest(stage.fn),
        "version": stage.version,
        "max_attempts": stage.retry.max_attempts,
        "backoff": backoff.growth.value,
        "base_delay": backoff.steps[0],
        "max_delay": backoff.cap,
        "jitter": f"{backoff.jitter.kind.value} {backoff.jitter.high:g}",
        "retriable_errors": on if isinstance(on, str) else [getattr(each, "__name__", each) for each in on],
        "timeout": stage.timeout,
        "concurrency": stage.concurrency,
        "breaker": None if stage.breaker is None else stage.breaker.name,
        "batch": msgspec.to_builtins(stage.batch),
        "limits": {each.name: _limit_facts(each) for each in stage.limits},
    }


def _limit_facts(limit: Limit) -> dict[str, object]:
    plain = {name: getattr(limit, name) for name in ("rate", "burst", "concurrency", "adaptive")}
    return plain | {name: getattr(limit, name) is not None for name in ("cost", "key")}


def code_facts(file: Path | None) -> dict[str, object]:
    """Return the digest of the file of a spec, and the commit it belongs to, with whether anything there was changed since."""
    text = b"" if file is None else file.read_bytes()
    folder = Path() if file is None else file.parent
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain")
    return {
        "source": hashlib.sha256(text).hexdigest(),
        "git_commit": commit or None,
        "git_dirty": None if commit is None else bool(changes),
    }


def hash_of(manifest: Manifest) -> str:
    """Return the hash of what a run is made of."""
    parts = {name: manifest[name] for name in HASHED}
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def ended(manifest: Manifest, report: RunReport) -> Manifest:
    """Return the manifest of a run with its account."""
    counts = {name: getattr(report, name) for name in COUNTS}
    now = None if report.status in {"running", "paused"} else _now()
    return {**manifest, "status": report.status, "reason": report.reason, "counts": counts, "ended_at": now}


COUNTS: Final = ("total", "succeeded", "dead", "skipped", "cancelled", "open")


def reprocessed(manifest: Manifest, loaded: LoadedSpec, *, stage: str | None, samples: int) -> Manifest:
    """Return the manifest of a run whose failed samples go through these stages now; it keeps the settings from before."""
    before = {name: facts["config"] for name, facts in manifest["stages"].items()}
    act = {
        "at": _now(),
        "stage": stage,
        "samples": samples,
        "hash_before": manifest["hash"],
        "configs_before": before,
    }
    new = new_manifest(loaded, manifest["input"], manifest["source"])
    return {
        **new,
        "started_at": manifest["started_at"],
        "counts": manifest["counts"],
        "changed": manifest["changed"],
        "reprocessed": [*manifest["reprocessed"], act],
    }


def renewed(manifest: Manifest, loaded: LoadedSpec) -> Manifest:
    """Return the manifest of a run that continues with the spec as it is now; a spec that has changed is recorded."""
    new = new_manifest(loaded, manifest["input"], manifest["source"])
    act = {"at": _now(), "hash_before": manifest["hash"]}
    changed = [*manifest["changed"], act] if new["hash"] != manifest["hash"] else manifest["changed"]
    kept = {name: manifest[name] for name in ("started_at", "ended_at", "status", "counts", "reprocessed")}
    return {**new, **kept, "changed": changed}


def measured(manifest: Manifest, loaded: LoadedSpec) -> Manifest:
    """Return the manifest of a run that was measured by the spec as it is now; its samples are those from before."""
    new = {**manifest, "measurements": measurement_facts(loaded.spec)}
    return {**new, "hash": hash_of(new)}


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a folder, or a manifest file.

    Raises:
        ConfigurationError: there is none, or it is not one of ours.
    """
    file = RunFolder(path).manifest if path.is_dir() else path
    try:
        found = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        rule, fix = "has no manifest that can be read", f"{error.strerror}."
        raise ConfigurationError(field="RUN", value=str(path), rule=rule, fix=fix) from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(field="RUN", value=str(file), rule="is not JSON", fix=f"{error}.") from error
    if (
        not isinstance(found, dict)
        or found.get("format") != FORMAT
        or any(part not in found for part in HASHED)
    ):
        rule = f"is not a Forge manifest of format {FORMAT}"
        raise ConfigurationError(
            field="RUN", value=str(file), rule=rule, fix="Was it written by another program?"
        )
    return found


def write_manifest(folder: RunFolder, manifest: Manifest) -> None:
    """Write the manifest of a folder."""
    write_file(
        folder.manifest, msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2) + b"\n"
    )


def differences(one: Manifest, other: Manifest) -> Iterator[str]:
    """Yield which stage or setting changed between two manifests, a line for each."""
    for part in HASHED:
        noun = {"stages": "stage ", "measurements": "measurement ", "libraries": "library "}.get(
            part, f"{part} "
        )
        for where, before, after in _changes(one[part], other[part]):
            name, _, setting = where.partition(".")
            place = f"{noun}{name}: {setting}" if setting else f"{noun}{name}"
            yield f"{place.strip()}: {_text(before)} -> {_text(after)}"


def _changes(one: object, other: object, where: str = "") -> Iterator[tuple[str, object, object]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _changes(one.get(key), other.get(key), f"{where}.{key}" if where else str(key))
    elif one != other:
        yield where, one, other


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "there"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None where there is no git, or no repository."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()  # noqa: S603 - fixed arguments.
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
