# SPDX-License-Identifier: Apache-2.0
"""The rule files name classes of libraries they do not import; here the names are compared with the installed libraries."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from redrive.engine.classifier import classify
from redrive.rules import LIBRARIES

# Rule file -> the modules where its classes live.
WHERE = {
    "aiohttp": ["aiohttp", "aiohttp.http_exceptions", "aiohttp.client_exceptions"],
    "anthropic": ["anthropic", "anthropic._exceptions", "anthropic.lib.credentials._workload"],
    "botocore": [
        "botocore.exceptions",
        "botocore.parsers",
        "botocore.eventstream",
        "boto3.exceptions",
        "s3transfer.exceptions",
    ],
    "google_api_core": ["google.api_core.exceptions"],
    "google_auth": ["google.auth.exceptions"],
    "google_genai": ["google.genai.errors", "google.genai._interactions", "google.genai._gaos.errors"],
    "googleapiclient": ["googleapiclient.errors", "httplib2.error"],
    "grpc": ["grpc", "grpc.aio"],
    "httpx": ["httpx", "httpcore", "httpx2", "httpcore2"],
    "notion_client": ["notion_client.errors"],
    "openai": ["openai", "openai._exceptions"],
    "requests": ["requests.exceptions"],
    "urllib3": ["urllib3.exceptions"],
}


@cache
def _classes(file: str) -> dict[str, type[BaseException]]:
    found: dict[str, type[BaseException]] = {}
    for name in WHERE[file]:
        module = importlib.import_module(name)
        # What is loaded, and what a module would load when asked; asking for everything would load the whole library.
        names = {*vars(module), *(name for name in dir(module) if name.endswith("Error"))}
        values: list[Any] = [getattr(module, name, None) for name in names]
        # By their real type: a proxy for a part of the library would load that part to find out what it is.
        classes = [value for value in values if issubclass(type(value), type)]
        found |= {cls.__name__: cls for cls in classes if issubclass(cls, BaseException)}
    return found


@pytest.mark.parametrize("file", WHERE)
def test_every_class_a_rule_names_exists_in_the_library(file: str) -> None:
    rules = importlib.import_module(f"redrive.rules.{file}").RULES

    missing = set(rules) - set(_classes(file))

    assert not missing


# Warnings and helpers of the standard library that these modules merely re-export are not theirs.
def _own(file: str) -> list[type[BaseException]]:
    roots = {root for root, target in LIBRARIES.items() if target == file}
    classes = _classes(file).values()
    return [
        cls
        for cls in classes
        if any(cls.__module__.startswith(root) for root in roots) and not issubclass(cls, Warning)
    ]


@pytest.mark.parametrize("file", WHERE)
def test_every_error_class_of_the_library_is_known(file: str) -> None:
    """A new class in a new version fails here first, rather than as an unknown bug in production."""
    # Roots that nobody raises, and one signal between the parts of a library.
    internal = {
        "EofStream",
        "BaseError",
        "BotoCoreError",
        "Boto3Error",
        "Error",
        "NotionClientErrorBase",
        "GoogleAPIError",
    }
    public = [cls for cls in _own(file) if cls.__name__ not in internal and not cls.__name__.startswith("_")]

    unknown = [cls.__qualname__ for cls in public if classify(_bare(cls)).is_unknown]

    assert not unknown


def _bare(cls: type[BaseException]) -> BaseException:
    """Make an instance that never went through its constructor, so that every attribute may be missing."""
    return cls.__new__(cls)


HOSTILE = [
    {},
    {"response": None, "status": None, "code": None, "kwargs": None, "reason": None},
    {
        "response": 7,
        "status": "503",
        "code": "x",
        "kwargs": 7,
        "body": 7,
        "details": 7,
        "errors": 7,
        "headers": 7,
        "resp": 7,
    },
    {
        "response": {"Error": 7, "ResponseMetadata": []},
        "status_code": True,
        "status": 10**30,
        "headers": {7: 7},
        "body": b"\xff",
    },
    {
        "response": {"Error": {"Code": 7}, "ResponseMetadata": {"HTTPStatusCode": "x", "HTTPHeaders": 7}},
        "details": [7, None],
    },
    {
        "_content": 7,
        "body": [[[]]],
        "content": "{" * 5000,
        "details": {"error": {"details": {"reason": 7}}},
        "code": 503,
    },
]


@pytest.mark.untraced
@pytest.mark.filterwarnings(
    "ignore:code property is deprecated:DeprecationWarning"
)  # setting it is enough for aiohttp to warn
@pytest.mark.parametrize("attributes", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("file", WHERE)
def test_an_exception_with_missing_or_odd_attributes_is_classified_all_the_same(
    file: str, attributes: dict[str, object]
) -> None:
    for cls in _own(file):
        raised = _bare(cls)
        for name, value in attributes.items():
            try:
                setattr(raised, name, value)
            except (AttributeError, TypeError):
                continue  # A property without a setter keeps what it has.

        assert classify(raised).code


class _Raising:
    """An object all of whose attributes raise."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


@pytest.mark.parametrize("file", WHERE)
def test_an_exception_whose_parts_raise_is_classified_all_the_same(file: str) -> None:
    for cls in _own(file):
        raised = _bare(cls)
        raised.__dict__.update(
            dict.fromkeys(("response", "resp", "headers", "body", "details", "kwargs", "reason"), _Raising())
        )

        assert classify(raised).code


def test_an_exception_that_contains_itself_is_classified_all_the_same() -> None:
    for file in WHERE:
        for cls in _own(file):
            raised = _bare(cls)
            raised.args = (raised,)
            raised.__dict__.update(
                reason=raised, response=raised, kwargs={"error": raised}, last_exception=raised
            )

            assert classify(raised).code


def test_two_exceptions_that_contain_each_other_are_classified_all_the_same() -> None:
    for file in WHERE:
        for cls in _own(file):
            one, other = _bare(cls), _bare(cls)
            for inner, outer in ((one, other), (other, one)):
                outer.args = (inner,)
                outer.__dict__.update(
                    reason=inner, response=inner, kwargs={"error": inner}, last_exception=inner
                )

            assert classify(one).code


def test_classifying_imports_no_client_library() -> None:
    roots = sorted(
        {root.partition(".")[0] for root in LIBRARIES} - {"redrive", "msgspec", *sys.stdlib_module_names}
    )
    program = (
        "import sys, pkgutil, importlib, redrive.rules, redrive.engine.classifier as c\n"
        "for found in pkgutil.iter_modules(redrive.rules.__path__):\n"
        "    importlib.import_module('redrive.rules.' + found.name)\n"
        "c.classify(ConnectionResetError()); c.classify(TimeoutError())\n"
        f"print(sorted(set({roots!r}) & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_every_rule_file_for_these_clients_is_compared() -> None:
    import redrive.rules

    shared = {"network", "reading", "rpc_status"}
    files = {found.name for found in pkgutil.iter_modules(redrive.rules.__path__)} - shared

    assert set(WHERE) <= files
