# SPDX-License-Identifier: Apache-2.0
"""Every class that a rule file names exists, is found by that file, and never makes `classify` raise, however odd it looks."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
from collections.abc import Iterator

import pytest

from redrive.core.failure import Failure
from redrive.engine.classifier import Classifier
from redrive.rules import find

MODULES = {
    "asyncpg": ["asyncpg.exceptions", "asyncpg.exceptions._base"],
    "ftp": ["ftplib"],
    "http_client": ["http.client", "urllib.error"],
    "imap_pop": ["imaplib", "poplib"],
    "jsonschema": ["jsonschema.exceptions", "referencing.exceptions"],
    "msgspec": ["msgspec"],
    "nats": ["nats.errors", "nats.js.errors"],
    "obstore": ["obstore.exceptions"],
    "psycopg": ["psycopg", "psycopg.errors"],
    "pydantic": ["pydantic", "pydantic.errors", "pydantic_core", "pydantic_core._pydantic_core"],
    "redis": ["redis.exceptions"],
    "redrive": ["redrive.errors"],
    "smtplib": ["smtplib"],
    "sqlalchemy": ["sqlalchemy.exc", "sqlalchemy.orm.exc"],
    "sqlite": ["sqlite3"],
    "stdlib": """
        asyncio binascii builtins concurrent.futures configparser copy csv decimal email.errors gzip importlib.metadata io
        ipaddress json lzma multiprocessing netrc pickle plistlib queue re shutil socket ssl struct subprocess tarfile threading
        tomllib wave xml.etree.ElementTree xml.parsers.expat xml.sax xmlrpc.client zipfile zlib zoneinfo
        """.split(),
}
NOT_INSTALLED = {
    "psycopg": {"PoolTimeout", "PoolClosed", "TooManyRequests"},
    "redrive": {"InjectedError", "StageEndingError"},
}
"""psycopg_pool is a package of its own, which the tests do not need for anything else; what tests inject is in redrive.testing."""

UNRULED = {
    # Roots that say nothing by themselves, and control flow that is no failure.
    "jsonschema": {
        "_Error",
        "_RefResolutionError",
        "CannotDetermineSpecification",
        "NoInternalID",
        "NoSuchAnchor",
    },
    "msgspec": {"MsgspecError"},
    "psycopg": {"Rollback", "Warning"},
    "pydantic": {"PydanticOmit", "PydanticUseDefault", "BaseExceptionGroup"},
    "redis": {"RedisError"},
    "redrive": {"RedriveError"},
}


def classes_of(library: str) -> dict[str, list[type[BaseException]]]:
    """Return the exception classes of a library by name; one name may stand for several."""
    found: dict[str, list[type[BaseException]]] = {}
    for name in MODULES[library]:
        for cls in _exceptions_in(importlib.import_module(name)):
            if cls not in found.setdefault(cls.__name__, []):
                found[cls.__name__].append(cls)
    return found


def _exceptions_in(owner: object) -> Iterator[type[BaseException]]:
    for value in list(vars(owner).values()):
        if inspect.isclass(value) and issubclass(value, BaseException):
            yield value
        elif inspect.isclass(value) and value.__name__ == "IMAP4":
            yield from _exceptions_in(value)


def rules_of(library: str) -> dict[str, object]:
    return dict(importlib.import_module(f"redrive.rules.{library}").RULES)


@pytest.mark.parametrize("library", MODULES)
def test_every_class_a_rule_names_exists_and_is_found_by_that_rule(library: str) -> None:
    classes = classes_of(library)

    for name in rules_of(library).keys() - NOT_INSTALLED.get(library, set()):
        assert name in classes, f"{library} has no class {name}"
        homes = {found.name for cls in classes[name] for found in find(cls)}
        assert f"{library}: {name}" in homes


@pytest.mark.parametrize("library", sorted(MODULES.keys() - {"stdlib"}))
def test_every_exception_of_a_library_has_a_rule(library: str) -> None:
    for name, classes in classes_of(library).items():
        for cls in classes:
            if (
                issubclass(cls, Warning)
                or cls.__module__ == "builtins"
                or name in UNRULED.get(library, set())
            ):
                continue
            assert find(cls), f"no rule for {cls}"


def test_wrappers_have_no_rule_of_their_own() -> None:
    for wrapper in (Exception, BaseException, ValueError):
        assert find(wrapper) == ()
    # RuntimeError has one, for a single message of CPython's; OSError too, for its numbers. Both pass on everything else.
    for wrapping in (RuntimeError("wrapped"), OSError("wrapped")):
        assert all(found.apply(wrapping, 0.0) is None for found in find(type(wrapping)))


ATTRIBUTES = """
    args code connection_invalidated err_code errcode errno headers orig pgcode pgconn reason recipients retry_after retry_at
    returncode smtp_code smtp_error sqlite_errorname sqlstate status_code winerror
    """.split()
ODD = [
    None,
    True,
    -1,
    10**30,
    math.nan,
    "x",
    "\0" * 6,
    b"\xff",
    [],
    {},
    (),
    {"a": (1, 2, 3)},
    object(),
    KeyError("odd"),
]


def bare(cls: type[BaseException]) -> BaseException | None:
    """Build an instance without running `__init__`; a few classes of compiled libraries refuse."""
    with contextlib.suppress(TypeError):
        return cls.__new__(cls)
    return None


def broken(cls: type[BaseException]) -> BaseException | None:
    """Build an instance whose every attribute raises."""

    def fail(_self: object) -> object:
        raise RuntimeError("unreadable")

    # A library may refuse to be subclassed with an exception of its own.
    with contextlib.suppress(Exception):
        members: dict[str, object] = {name: property(fail) for name in ATTRIBUTES if name != "args"}
        members |= {"__module__": cls.__module__, "__str__": fail, "__repr__": fail}
        odd: type[BaseException] = type(cls.__name__, (cls,), members)
        return odd.__new__(odd)
    return None


@pytest.mark.untraced
@pytest.mark.parametrize("library", MODULES)
def test_no_exception_of_a_library_makes_classify_raise(library: str) -> None:
    classifier = Classifier()

    for cls in (cls for classes in classes_of(library).values() for cls in classes):
        for exc in (bare(cls), broken(cls)):
            if exc is not None and not issubclass(cls, BaseExceptionGroup):
                assert isinstance(classifier.classify(exc), Failure)


@pytest.mark.parametrize("library", MODULES)
def test_odd_attributes_make_no_rule_raise(library: str) -> None:
    classifier = Classifier()

    for name in rules_of(library).keys() - NOT_INSTALLED.get(library, set()):
        for cls in classes_of(library)[name]:
            for value in ODD:
                exc = bare(cls)
                if exc is None:
                    continue
                for attribute in ATTRIBUTES:
                    with contextlib.suppress(AttributeError, TypeError, ValueError):
                        setattr(exc, attribute, value)
                assert isinstance(classifier.classify(exc), Failure)


def test_exceptions_that_hold_each_other_come_to_an_end() -> None:
    from urllib.error import URLError

    import sqlalchemy.exc

    wrapped = sqlalchemy.exc.OperationalError("select 1", {}, Exception("x"))
    url_error = URLError(wrapped)
    wrapped.orig = url_error
    wrapped.__cause__ = url_error
    own_reason = URLError("x")
    own_reason.reason = own_reason
    own_orig = sqlalchemy.exc.OperationalError("select 1", {}, Exception("x"))
    own_orig.orig = own_orig

    for exc in (wrapped, url_error, own_reason, own_orig):
        assert isinstance(Classifier().classify(exc), Failure)
