# SPDX-License-Identifier: Apache-2.0
"""Boundaries: who may import whom, what the core may not touch, where clocks, chance and the environment are read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tests.tidy.tree import Source, dotted

# Layer -> the layers it may import besides itself. `redrive` alone is the package's own face, which only re-exports.
MAY_IMPORT = {
    "errors": set[str](),
    "core": {"errors"},
    "redaction": {"errors"},
    "rules": {"core", "errors"},
    "config": {"redaction", "errors"},
    # The variables of a driver decide what it is given besides them.
    "store": {"core", "config", "errors"},
    "sinks": {"core", "redaction", "store", "errors"},
    "engine": {"core", "rules", "config", "redaction", "store", "sinks", "errors"},
    "ops": {"core", "rules", "config", "redaction", "store", "sinks", "engine", "errors"},
    "client": {"core", "config", "redaction", "store", "engine", "ops", "errors"},
    "lab": {"core", "store", "engine", "ops", "errors"},
    "telemetry": {"core", "config", "store", "engine", "ops", "client", "errors"},
    "testing": {"core", "rules", "config", "redaction", "store", "engine", "ops", "client", "errors"},
    "cli": {
        *(
            "core",
            "rules",
            "config",
            "redaction",
            "store",
            "engine",
            "ops",
            "client",
            "lab",
            "telemetry",
            "errors",
        ),
        "redrive",
    },
    "web": {"core", "config", "redaction", "store", "engine", "ops", "client", "telemetry", "errors"},
    "redrive": {"core", "rules", "config", "redaction", "store", "engine", "client", "errors"},
}
IMPURE = {
    *(
        "asyncio",
        "concurrent",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "selectors",
    ),
    *(
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
    ),
}
IMPURE_REDACTION = {"redrive.redaction.process"}
# Parts of such modules that only compute.
_PURE_PARTS = ("urllib.parse", "http.HTTPStatus")
_IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
_CLOCK_CALLS = re.compile(
    r"^(time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|sleep|localtime|gmtime)"
    r"|(datetime\.)?(datetime|date)\.(now|utcnow|today)|random\.\w+|secrets\.\w+|uuid\.uuid[14])$"
)
_ENVIRONMENT = re.compile(r"^os\.(environb?|getenvb?|putenv|unsetenv)$")
_CLOCK_NAMES = {"time": {"time", "monotonic", "perf_counter", "sleep"}, "os": {"environ", "getenv"}}
CLOCK_HOME = "redrive.engine.clock"
ENVIRONMENT_HOMES = ("redrive.config", "redrive.redaction.process")


def imports(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Every import as the dotted name it reaches for; `from a import b` gives `a.b`."""
    base = source.module.split(".")
    package = base if source.is_package else base[:-1]
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node, f"{start}.{alias.name}") for alias in node.names)


def layer_of(module: str) -> str | None:
    """Return the layer a dotted name under `redrive` belongs to."""
    first, _, rest = module.partition(".")
    if first != "redrive":
        return None
    second = rest.partition(".")[0]
    return second if second in MAY_IMPORT else "redrive"


def wrong_direction(source: Source) -> list[str]:
    own = layer_of(source.module)
    if own is None:
        return []
    allowed = {own, *MAY_IMPORT[own]}
    return [
        source.at(node, f"{own} may not import {name}; it may import {', '.join(sorted(allowed))}")
        for node, name in imports(source)
        if (layer_of(name) or own) not in allowed
    ]


def impure_core(source: Source) -> list[str]:
    """The core is pure, and so is the redactor, except for the two modules that read from this process."""
    if layer_of(source.module) not in {"core", "redaction"} or source.module in IMPURE_REDACTION:
        return []
    found = [
        source.at(node, f"the core is pure and may not import {name}")
        for node, name in imports(source)
        if name.partition(".")[0] in IMPURE and not name.startswith(_PURE_PARTS)
    ]
    for node in source.nodes:
        name = dotted(node.func) if isinstance(node, ast.Call) else ""
        if name in _IMPURE_CALLS or _CLOCK_CALLS.match(name):
            found.append(source.at(node, f"the core is pure and may not call {name}"))
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            found.append(source.at(node, "the core is pure and knows nothing of asyncio"))
    return found


def stray_clocks(source: Source) -> list[str]:
    """Clocks and random numbers are read in one module, the environment in two; all others take them as arguments."""
    found: list[str] = []
    # `random.Random(seed)` draws the same numbers every time: it is no chance.
    seeded = [node.func for node in source.nodes if isinstance(node, ast.Call) and node.args]
    for node in source.nodes:
        name = dotted(node) if isinstance(node, ast.Attribute) else ""
        if name == "random.Random" and node in seeded:
            continue
        if _CLOCK_CALLS.match(name) and source.module != CLOCK_HOME:
            found.append(source.at(node, f"{name} outside {CLOCK_HOME}; take a Clock or a Chance instead"))
        if _ENVIRONMENT.match(name) and source.module not in ENVIRONMENT_HOMES:
            found.append(
                source.at(node, f"{name} outside {' and '.join(ENVIRONMENT_HOMES)}; take a setting instead")
            )
        if isinstance(node, ast.ImportFrom) and source.module not in {CLOCK_HOME, *ENVIRONMENT_HOMES}:
            taken = {alias.name for alias in node.names} & _CLOCK_NAMES.get(node.module or "", set())
            found.extend(
                source.at(node, f"from {node.module} import {one}: take it as an argument instead")
                for one in taken
            )
    return found


def stray_prints(source: Source) -> list[str]:
    if layer_of(source.module) == "cli":
        return []
    return [
        source.at(node, "print outside the command line")
        for node in source.nodes
        if isinstance(node, ast.Call) and dotted(node.func) == "print"
    ]


def asserts(source: Source) -> list[str]:
    return [
        source.at(node, "assert is gone under -O; raise an error of redrive.errors")
        for node in source.nodes
        if isinstance(node, ast.Assert)
    ]


def unreferenced(every: Iterable[Source], entries: Iterable[str]) -> list[str]:
    """A module is dead if nothing imports it, no table of its package or in full names it, and no entry point starts it.

    Args:
        every: The modules of the package.
        entries: Modules that are reached from outside: entry points, and documented submodules.
    """
    modules = list(every)
    used = {*entries}
    for source in modules:
        for _, name in imports(source):
            used |= {name, name.rpartition(".")[0]}
        constants = [node.value for node in source.nodes if isinstance(node, ast.Constant)]
        words = [value for value in constants if isinstance(value, str)]
        used |= {word.partition(":")[0] for word in words if word.startswith("redrive.")}
        if source.is_package:
            used |= {f"{source.module}.{word}" for word in words}
    return [
        source.at(1, f"nothing refers to {source.module}")
        for source in modules
        if not source.is_package and source.module not in used and not source.module.endswith("__main__")
    ]
