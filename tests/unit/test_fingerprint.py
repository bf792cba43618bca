# SPDX-License-Identifier: Apache-2.0
"""Fingerprints: the same trouble groups together, different trouble does not."""

from __future__ import annotations

import json
import textwrap
import types
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import fingerprint, frames_of
from redrive.core import taxonomy
from redrive.core.fingerprint import FRAMES_MAX, Frame, normalise

from .build import failure


def loaded(
    source: str, *, path: str = "/app/shop/orders.py", name: str = "shop.orders"
) -> Callable[[], object]:
    """Load a module from text as if it lay at this path, and return its `work`."""
    module = types.ModuleType(name)
    exec(compile(textwrap.dedent(source), path, "exec"), module.__dict__)
    return module.work  # type: ignore[no-any-return]


def print_of(work: Callable[[], object], **changes: object) -> str:
    try:
        work()
    except Exception as exc:
        return fingerprint(failure(taxonomy.BUG_CODE, message=str(exc), **changes), "review", frames_of(exc))
    raise AssertionError("the work was meant to fail")


ORDER = """
def find(order):
    return {}[order]
def work():
    find("A-%s")
"""


def test_a_fingerprint_carries_its_version() -> None:
    version, _, digest = fingerprint(failure(), "fetch").partition(":")

    assert version == "v1"
    assert len(digest) == 16


def test_the_same_bug_with_other_ids_groups_together() -> None:
    assert print_of(loaded(ORDER % "17")) == print_of(loaded(ORDER % "4242"))


def test_edits_above_the_function_do_not_regroup() -> None:
    assert print_of(loaded(ORDER % "1")) == print_of(loaded("import os\n\n\n" + ORDER % "1"))


def test_another_function_stage_code_or_class_is_another_group() -> None:
    base = print_of(loaded(ORDER % "1"))

    assert base != print_of(loaded(ORDER.replace("find", "fetch") % "1"))
    assert base != print_of(loaded(ORDER % "1"), code="OTHER")
    assert base != print_of(loaded(ORDER % "1"), error_class="shop.Other")
    assert base != print_of(loaded(ORDER % "1"), http_status=500)
    assert fingerprint(failure(), "fetch") != fingerprint(failure(), "notify")


def test_two_bugs_in_one_function_are_two_groups() -> None:
    two = """
    def work():
        if {flag}:
            return 1 / 0
        return 2 / 0
    """
    assert print_of(loaded(two.format(flag=True))) != print_of(loaded(two.format(flag=False)))


LIBRARY = "/venv/lib/python3.11/site-packages/client/wire.py"


def through_library(shift: int, function: str = "send") -> str:
    send = loaded(
        "\n" * shift + f"def {function}():\n    raise OSError('gone')\nwork = {function}",
        path=LIBRARY,
        name="client.wire",
    )
    module = types.ModuleType("shop.calls")
    module.__dict__["send"] = send
    exec(compile("def work():\n    send()\n", "/app/shop/calls.py", "exec"), module.__dict__)
    return print_of(module.work)


def test_shifted_lines_and_renamed_functions_in_libraries_do_not_regroup() -> None:
    assert through_library(0) == through_library(40) == through_library(3, "send_v2")


def test_without_own_frames_the_library_functions_tell_bugs_apart() -> None:
    def frame(function: str) -> Frame:
        return Frame("client.wire", function, 1, is_own=False)

    one, other = (fingerprint(failure(), "s", [frame(name)]) for name in ("send", "receive"))
    assert one != other


def test_only_the_users_code_is_own() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")

    frames = frames_of(raised.value)
    assert [frame.is_own for frame in frames] == [True] + [False] * (len(frames) - 1)


def test_a_very_deep_stack_is_bounded() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("deep")
        deep(n - 1)

    with pytest.raises(ValueError, match="deep") as raised:
        deep(300)

    assert len(frames_of(raised.value)) == FRAMES_MAX


def test_a_frame_without_a_module_name_is_known_by_its_file() -> None:
    namespace: dict[str, object] = {"__name__": 42}
    exec(compile("def work():\n    raise OSError('gone')\n", "/app/x.py", "exec"), namespace)
    with pytest.raises(OSError, match="gone") as raised:
        namespace["work"]()  # type: ignore[operator]

    assert frames_of(raised.value)[-1].module == "/app/x.py"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 failed", "order 1823 failed"),
        (
            "user 3fa85f64-5717-4562-b3fc-2c963f66afa6 is gone",
            "user 6ba7b810-9dad-11d1-80b4-00c04fd430c8 is gone",
        ),
        ("<Order object at 0x7f3a2c1b> broke", "<Order object at 0x55d0c1ff> broke"),
        ("at 2026-01-02T03:04:05Z it failed", "at 2025-11-30 23:59:59.123+02:00 it failed"),
        ("GET https://api.test/orders/17?x=1 failed", "GET https://api.test/orders/abc failed"),
        ("GET http://u:p@api.test:8080/a failed", "GET http://api.test:9090/b failed"),
        ("mail to ann@example.org bounced", "mail to bob@mail.example.com bounced"),
        ("10.0.0.1:5432 refused", "192.168.7.20:5433 refused"),
        ("cannot open /tmp/a1/x.pdf", "cannot open /var/spool/y.pdf"),
        ("bad value 'Ann Miller'", "bad value 'Bob Smith 2'"),
        (
            "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
            "commit 1b6453892473a467d07372d45eb05abc2031647a",
        ),
        ("id cus_9s6XKzkNRiz8i3 unknown", "id cus_4fdAW5ftNQow1a unknown"),
        ("took 3.25 s", "took 17 s"),
        ("a   b\n c", "a b c"),
    ],
)
def test_what_differs_between_occurrences_is_normalised(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'NoneType' object has no attribute 'id'", "'NoneType' object has no attribute 'name'"),
        ("connection refused", "connection reset"),
        ("missing field 'email'", "missing field 'phone'"),
        ("GET https://api.test/x failed", "GET https://other.test/x failed"),
    ],
)
def test_what_tells_bugs_apart_stays(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


@given(st.text(max_size=500))
def test_normalising_is_total_and_bounded(message: str) -> None:
    assert len(normalise(message)) <= 300
    assert fingerprint(failure(message=message), "s") == fingerprint(failure(message=message), "s")


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.text(alphabet="abc xyz", min_size=1, max_size=30))
def test_numbers_never_split_a_group(one: int, other: int, text: str) -> None:
    assert normalise(f"{text} {one}") == normalise(f"{text} {other}")
