# SPDX-License-Identifier: Apache-2.0
"""Fingerprints: the same trouble groups together, different trouble does not."""

from __future__ import annotations

import json
import textwrap
import time
import types
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import fingerprint
from redrive.core import taxonomy
from redrive.core.fingerprint import FRAMES_MAX, Frame, frames_of
from redrive.core.normalise import normalise

from .build import failure, ruleless


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
    assert base != print_of(loaded(ORDER % "1"), exception="shop.Other")
    assert base != print_of(loaded(ORDER % "1"), http_status=500)
    assert base != print_of(loaded(ORDER % "1"), provider_code="card_declined")
    assert fingerprint(failure(), "fetch") != fingerprint(failure(), "notify")


def test_where_a_stage_ends_and_its_code_begins_makes_a_difference() -> None:
    assert fingerprint(failure(code="_DOWN"), "API") != fingerprint(failure(code="DOWN"), "API_")


def test_the_same_function_of_another_class_or_module_is_another_group() -> None:
    method = """
    class {name}:
        def send(self):
            raise OSError("gone")
    def work():
        {name}().send()
    """

    def of(module: str) -> str:
        return fingerprint(failure(), "s", [Frame(module, "send", 1, is_own=True)])

    assert print_of(loaded(method.format(name="Mail"))) != print_of(loaded(method.format(name="Fax")))
    assert of("shop.mail") != of("shop.fax")


def test_a_text_that_no_encoding_takes_has_a_fingerprint() -> None:
    assert fingerprint(failure(message="cannot open men\udcfc"), "s").startswith("v1:")


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


SAME = [
    ("order 17 failed", "order 1823 failed"),
    ("offset -5", "offset 17"),
    ("loss 1.2e-05", "loss 3.4e+10"),
    ("loss nan", "loss 3.2"),
    ("a nan b", "a 3 b"),
    ("amount 1,234.56 exceeds", "amount 99.00 exceeds"),
    ("took 3.25 s", "took 17 s"),
    ("Please try again in 6ms.", "Please try again in 1.2s."),
    ("Please try again in 6m0s.", "Please try again in 20 seconds."),
    (
        "user 3fa85f64-5717-4562-b3fc-2c963f66afa6 is gone",
        "user 6ba7b810-9dad-11d1-80b4-00c04fd430c8 is gone",
    ),
    ("<Order object at 0x7f3a2c1b> broke", "<Order object at 0x55d0c1ff> broke"),
    (
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "commit 1b6453892473a467d07372d45eb05abc2031647a",
    ),
    ("object abc123 missing", "object f00dee missing"),
    ("commit deadbee broken", "commit 3f2a90c broken"),
    ("commit deadbeefcafe", "commit 12ab34cd56ef"),
    ("commit DEADBEEF01", "commit 12AB34CD56"),
    ("id cus_9s6XKzkNRiz8i3 unknown", "id cus_4fdAW5ftNQow1a unknown"),
    ("customer cus_NffrFeUfNV2Hib declined", "customer cus_abcdefghijkl declined"),
    ("sess_abcdEFGHijkl expired", "sess_zyxwvutsRQPO expired"),
    ("token dGVzdA== bad", "token aGVsbG8= bad"),
    ("web-7d4b9c6f5-x2x7q is down", "web-5f6d8b7c9-abcde is down"),
    ("job a1b2c3d4-x9y8z7w6 stuck", "job q1w2e3r4 stuck"),
    ("user1234 locked", "user98765 locked"),
    ("id AbCdEfGh unknown", "id qWeRtYuI unknown"),
    ("id abCdEfGhi unknown", "id AbCdEfGh unknown"),
    ("seat a1b2c taken", "seat x9y8z taken"),
    ("part xyz987uvw65 gone", "part qrs123tuv45 gone"),
    ("returned 1234567", "returned 7654321"),
    ("topic orders-3 offset 55", "topic orders-12 offset 9000"),
    (
        "Rate limit reached for gpt-4o in organization org-AbCdEfGh on tokens per min (TPM): Limit 30000, Used 29000. Please try again in 1.2s.",
        "Rate limit reached for gpt-4o in organization org-ZzYyXxWw on tokens per min (TPM): Limit 30000, Used 100. Please try again in 6ms.",
    ),
    ("at 2026-01-02T03:04:05Z it failed", "at 2025-11-30 23:59:59.123+02:00 it failed"),
    ("at 10:11:12 it failed", "at 9:01 it failed"),
    ("due 03/04/2025", "due 12/31/2024"),
    ("GET https://api.test/orders/17?x=1 failed", "GET https://api.test/orders/abc failed"),
    ("GET http://u:p@api.test:8080/a failed", "GET http://api.test:9090/b failed"),
    ("mail to ann@example.org bounced", "mail to bob@mail.example.com bounced"),
    ("10.0.0.1:5432 refused", "192.168.7.20:5433 refused"),
    ("connect to [2001:db8::1]:443 failed", "connect to [2001:db8:85a3::8a2e:370:7334]:443 failed"),
    ("no route to fe80::1ff:fe23:4567:890a", "no route to fe80::aaaa:bbbb:cccc:dddd%eth0"),
    ("cannot open /tmp/a1/x.pdf", "cannot open /var/spool/y.pdf"),
    ("file /tmp missing", "file /var/lib missing"),
    ("open data/in/a.csv", "open data/b.csv"),
    ("open ./a", "open ../b/c"),
    ("open alice.pdf", "open 12.pdf"),
    (r"open C:\Users\bob\x.txt", r"open C:\y.txt"),
    (r"open \\nas\share\x", r"open \\nas\other\y\z"),
    (
        "HTTPConnectionPool(host='10.0.0.5', port=8080): Max retries exceeded with url: /a/b?x=1 (Caused by X('<urllib3.connection.HTTPConnection object at 0x7f>: refused by peer'))",
        "HTTPConnectionPool(host='10.0.0.6', port=8080): Max retries exceeded with url: /c (Caused by X('<urllib3.connection.HTTPConnection object at 0x8e>: refused by peer'))",
    ),
    ("[Errno 2] No such file or directory: 'alice.pdf'", "[Errno 2] No such file or directory: 'bob.pdf'"),
    ("bad value 'Ann Miller'", "bad value 'Bob Smith 2'"),
    ("bad value 'Ann Miller'", 'bad value "Dara O\'Brien"'),
    ("bad value 'O'Brien'", "bad value 'Smith'"),
    ("bad bytes b'abc'", "bad bytes b'\\xff\\''"),
    ("user 'alice' not found", "user 'bob' not found"),
    ("Kunde 'Müller' fehlt", "Kunde 'Smith' fehlt"),
    ("'XLM' is not a valid Currency", "'USDX' is not a valid Currency"),
    ("invalid literal for int() with base 10: 'abc'", "invalid literal for int() with base 10: '12x'"),
    ("Duplicate entry 'bob' for key 'users.email'", "Duplicate entry 'ann' for key 'users.email'"),
    ("Key (name)=(bob) already exists", "Key (name)=(alice b.) already exists"),
    ("Failing row contains (1, bob, null).", "Failing row contains (2, ann lee, 7)."),
    ("""bad row {"id": 1, "name": "Ann"}""", """bad row {"id": 2, "name": "Bob"}"""),
    ("bad row {'id': 1, 'name': 'Ann'}", "bad row {'id': 2, 'name': None, 'tags': 'a b'}"),
    (r'body "{\"name\": \"Ann\"}"', r'body "{\"name\": \"Bob Lee\"}"'),
    (r"body {\"name\": \"Ann\"}", r"body {\"name\": \"Bob\"}"),
    ("got [1, 2]", "got [1, 2, 3, 4]"),
    ("got [1,2]", "got [1,2,3,4]"),
    ("got [[1], [2]]", "got [[3]]"),
    ("counts {1: 2}", "counts {3: 4, 5: 6}"),
    ("got ['a', 'b']", "got ['c']"),
    ("params ('a', 'b', 'c')", "params ('d', 'e', 'f', 'g')"),
    ("got [(1, 2), (3, 4)]", "got [(1, 2), (3, 4), (5, 6)]"),
    ("\"no user 'alice' here\"", "\"no user 'bob' here\""),
    ("' order 17 is gone '", "'order 4 is gone'"),
    (
        "{'message': 'the reason \"no such user\" was given'}",
        "{'message': 'the reason \"row is bad\" was given'}",
    ),
    ("7, " * 1_000 + "alpha", "7, " * 1_000 + "omega"),
    ("word " * 60, "word " * 100),
    ("a   b\n c", "a b c"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_differs_between_occurrences_is_normalised(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


DIFFERENT = [
    ("'NoneType' object has no attribute 'id'", "'NoneType' object has no attribute 'name'"),
    ("'int' object is not iterable", "'float' object is not iterable"),
    ("connection refused", "connection reset"),
    ("missing field 'email'", "missing field 'phone'"),
    ("missing fields: 'email', 'phone'", "missing fields: 'email', 'street'"),
    ("'email' is a required property", "'phone' is a required property"),
    ("name 'total' is not defined", "name 'price' is not defined"),
    ("'price'", "'currency'"),
    ("'order 17 missing'", "'order 17 late'"),
    ("unknown constraints: 'a_key'", "unknown constraints: 'b_key'"),
    ("'x-request-id'", "'content-type'"),
    ('column "price" does not exist', 'column "amount" does not exist'),
    ('violates unique constraint "users_email_key"', 'violates unique constraint "users_phone_key"'),
    ("Duplicate entry 'bob' for key 'users.email'", "Duplicate entry 'bob' for key 'users.phone'"),
    ("\"no user 'alice' here\"", "\"no order 'alice' here\""),
    ("GET https://api.test/x failed", "GET https://other.test/x failed"),
    ("Utf8Decoder failed", "Base64Decoder failed"),
    ("Sha256Error: mismatch", "Http2Error: mismatch"),
    ("sha256 mismatch", "sha512 mismatch"),
    ("SHA256 mismatch", "SHA512 mismatch"),
    ("unknown column address_line1", "unknown column address_line2"),
    ("HTTPSConnectionPool broke", "OAuthURLBuilder broke"),
    ("api_HttpServerError", "api_JsonParserError"),
    ("the page was defaced", "the page was effaced"),
    ("input/output error", "read/write error"),
    ("timeout= wrong", "retries= wrong"),
    ("timeoutMs= wrong", "retriesMax= wrong"),
    ("can't connect to db, won't retry", "can't read the manifest, won't retry"),
    ("API returned 404", "API returned 500"),
    ("status code: 404", "status code: 409"),
    ("[Errno 2] broken", "[Errno -3] broken"),
    ("HTTP 502", "HTTP 503"),
    ("SQLSTATE[42S02]", "SQLSTATE[42P01]"),
    ("SQLSTATE 23505", "SQLSTATE 23503"),
    ("failed with error 0x80070005", "failed with error 0x80070057"),
    ('(1045, "Access denied for user")', '(1049, "Unknown database")'),
    ("Pool (Caused by X('the name is unknown'))", "Pool (Caused by X('the peer has gone'))"),
    ("{'message': 'no', 'type': 'quota', 'param': None}", "{'message': 'no', 'type': 'rate', 'param': None}"),
    ("{'code': 'insufficient_quota'}", "{'code': 'rate_limit_exceeded'}"),
    ("{'message': 'quota is exceeded'}", "{'message': 'key is unknown'}"),
    ("{'message': 'the model is unknown'}", "{'message': 'the prompt is too long'}"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_tells_bugs_apart_stays(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


def test_a_number_after_a_colon_counts_things_unless_it_is_a_code() -> None:
    assert normalise("Error: 17 rows are bad") == normalise("Error: 5 rows are bad")


@pytest.mark.parametrize("exception", ["KeyError", "AttributeError", "NameError", "ImportError", "TypeError"])
def test_types_that_quote_names_keep_them(exception: str) -> None:
    def of(message: str, **changes: object) -> str:
        return fingerprint(failure(message=message, **changes), "s")

    mine = {"exception": "shop.Mine", "lineage": ("shop.Mine", exception, "Exception", "BaseException")}
    assert of("bad 'email'", exception=exception) != of("bad 'phone'", exception=exception)
    assert of("bad 'email'", **mine) != of("bad 'phone'", **mine)
    assert of("bad 'Ann Lee', 'k_17'", **mine) == of("bad 'B b', 'k_18'", **mine)
    assert of("bad 'email'") == of("bad 'phone'")


def test_the_class_of_a_known_failure_beneath_tells_bugs_apart() -> None:
    def wrapped(cause: Exception | None) -> str:
        error = RuntimeError("upload failed")
        error.__cause__ = cause
        return fingerprint(ruleless(error), "s")

    assert len({wrapped(None), wrapped(KeyError("a")), wrapped(TypeError("b"))}) == 3
    assert wrapped(KeyError("a")) == wrapped(KeyError("b"))


def test_the_class_of_a_groups_worst_member_tells_bugs_apart() -> None:
    one, other = (
        fingerprint(ruleless(ExceptionGroup("many", [member])), "s")
        for member in (KeyError("a"), TypeError("b"))
    )
    assert one != other


def test_a_failure_without_a_lineage_has_a_fingerprint() -> None:
    assert fingerprint(failure(lineage=()), "s").startswith("v1:")


@pytest.mark.parametrize(("one", "other"), [(3, 5), (5, 200)])
def test_the_depth_of_a_recursion_does_not_regroup(one: int, other: int) -> None:
    source = """
    def walk(n):
        if n == 0:
            raise OSError("node broke")
        step(n)
    def step(n):
        walk(n - 1)
    def work():
        walk({depth})
    """

    assert print_of(loaded(source.format(depth=one))) == print_of(loaded(source.format(depth=other)))


def test_the_same_function_twice_on_the_way_is_not_a_recursion() -> None:
    def of(*functions: str) -> str:
        return fingerprint(failure(), "s", [Frame("m", name, 1, is_own=True) for name in functions])

    assert of("a", "b", "a") != of("a", "b")
    assert of("a", "a", "b") == of("a", "b") == of("a", "b", "a", "b")
    assert of(*"abcdabcd") == of(*"abcd")
    assert of(*"abcdeabcde") != of(*"abcde")


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("/app/shop/orders.py", True),
        ("C:\\app\\lib\\orders.py", True),
        ("C:\\Python311\\Lib\\json\\decoder.py", False),
        ("C:\\app\\.venv\\Lib\\site-packages\\client\\wire.py", False),
        ("/usr/lib/python3.11/json/decoder.py", False),
        ("/usr/lib/pypy3.10/json/decoder.py", False),
        ("/usr/lib/python311.zip/json/decoder.py", False),
        ("/usr/lib/python3/dist-packages/client.py", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_whose_code_it_is_shows_in_the_path(path: str, is_own: bool) -> None:
    work = loaded("def work():\n    raise OSError('gone')\n", path=path)
    with pytest.raises(OSError, match="gone") as raised:
        work()

    assert frames_of(raised.value)[-1].is_own is is_own


@pytest.mark.parametrize(
    ("module", "is_own"),
    [("redrive.engine.worker", False), ("redriven.orders", True), ("redrive_shop", True)],
)
def test_of_the_code_beside_an_application_only_redrive_itself_is_not_its_own(
    module: str, is_own: bool
) -> None:
    # No file, so that what measures coverage by the name of a module does not look for it.
    work = loaded("def work():\n    raise OSError('gone')\n", path="<orders>", name=module)
    with pytest.raises(OSError, match="gone") as raised:
        work()

    assert frames_of(raised.value)[-1].is_own is is_own


@given(st.text(max_size=500))
def test_normalising_is_total_and_bounded(message: str) -> None:
    assert len(normalise(message)) <= 300
    assert fingerprint(failure(message=message), "s") == fingerprint(failure(message=message), "s")


PIECES = st.sampled_from([piece for pair in SAME + DIFFERENT for piece in pair])


@given(PIECES, PIECES)
def test_what_is_normal_stays_as_it_is(one: str, other: str) -> None:
    normal = normalise(f"{one} and then {other}"[:250])

    assert normalise(normal) == normal


PROSE = st.text(alphabet="abc xyz", min_size=1, max_size=30)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12), PROSE)
def test_numbers_never_split_a_group(one: int, other: int, text: str) -> None:
    assert normalise(f"{text} {one} rows") == normalise(f"{text} {other} rows")


@given(st.floats(), st.floats(), PROSE)
def test_fractions_never_split_a_group(one: float, other: float, text: str) -> None:
    assert normalise(f"{text} {one:g}") == normalise(f"{text} {other:g}")


@pytest.mark.untraced
@given(st.uuids(), st.uuids(), PROSE)
def test_uuids_never_split_a_group(one: object, other: object, text: str) -> None:
    assert normalise(f"{text} {one} gone") == normalise(f"{text} {other} gone")


# Without a digit it might as well be a name with colons in it.
ADDRESSES = st.ip_addresses(v=6).map(str).filter(lambda text: any(sign.isdigit() for sign in text))


@pytest.mark.untraced
@given(ADDRESSES, ADDRESSES, PROSE)
def test_addresses_never_split_a_group(one: object, other: object, text: str) -> None:
    assert normalise(f"{text} {one} gone") == normalise(f"{text} {other} gone")


LOCAL = st.from_regex(r"[a-z0-9]{1,20}([.+_-][a-z0-9]{1,10}){0,2}", fullmatch=True)
EMAILS = st.tuples(LOCAL, st.sampled_from(["example.org", "mail.example.com"])).map("@".join)


@pytest.mark.untraced
@given(EMAILS, EMAILS, PROSE)
def test_emails_never_split_a_group(one: str, other: str, text: str) -> None:
    assert normalise(f"{text} {one} bounced") == normalise(f"{text} {other} bounced")


@pytest.mark.parametrize(
    "unit",
    ["'a ", '"', "'", "\\", "a-", "a/", "1,", "0:", "(", "a_1", "<id>, ", "A", "='", "a.", "/", "[1], "],
)
def test_a_hostile_message_costs_little(unit: str) -> None:
    started = time.process_time()
    normalise(unit * 5_000)

    assert time.process_time() - started < 0.25
