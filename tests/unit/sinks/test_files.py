# SPDX-License-Identifier: Apache-2.0
"""The folder of dead letters: whole files, one per letter, private, and never anywhere else."""

from __future__ import annotations

import json
import os
import stat
import string
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from redrive.errors import ConfigurationError
from redrive.sinks import Files, SunkAttempt, SunkLetter, safe_name, write_file

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ATTEMPT = SunkAttempt(
    dispatch=1, stage="fetch", round=1, attempt=1, outcome="dead", code="BUG_CODE", http_status=None,
    started_at=AT, ended_at=AT,
)  # fmt: skip
LETTER = SunkLetter(
    delivery="abc-7-1-1", event="born", state="open", changed_at=AT, sent_at=AT, letter_id=3, job_id=7,
    dispatch=1, pipeline="shop", stage="fetch", round=1, key="k", owner=None,
    code="BUG_CODE", category="bug", is_retryable=False, error_class="BUG_CODE",
    exception="KeyError", message="'x'", last_stack="Traceback",
    fingerprint="v1:0123456789abcdef", reason="permanent", sanitized_context={"attempt": 1}, first_failure_at=AT,
    last_failure_at=AT, attempts=1, history=(ATTEMPT,), is_escalated=False, follows=None,
    diagnosis=None, assignee=None, evidence=None, replay=None,
)  # fmt: skip


def letter(**changes: object) -> SunkLetter:
    return msgspec.structs.replace(LETTER, **changes)


def files_in(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def test_a_letter_is_one_private_file_of_json(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "letters"
    Files(folder).deliver(LETTER)

    assert files_in(folder) == ["shop/fetch/7-1.json"]
    file = folder / "shop/fetch/7-1.json"
    told = json.loads(file.read_text(encoding="utf-8"))
    assert (told["code"], told["history"][0]["outcome"], told["first_failure_at"]) == (
        "BUG_CODE",
        "dead",
        "2026-01-02T03:04:05Z",
    )
    assert "payload" not in told
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for made in (file.parent, file.parent.parent, folder, folder.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_the_same_letter_twice_is_one_file_and_a_payload_stands_in_it(tmp_path: Path) -> None:
    sink = Files(tmp_path, payload="include")
    sink.deliver(letter(payload={"a": 1}))
    sink.deliver(letter(payload={"a": 1}))

    (name,) = files_in(tmp_path)
    assert json.loads((tmp_path / name).read_text(encoding="utf-8"))["payload"] == {"a": 1}


def test_a_change_updates_the_file_of_its_letter_and_an_older_one_that_comes_late_does_not(
    tmp_path: Path,
) -> None:
    sink = Files(tmp_path)
    born = letter()
    resolved = letter(delivery="abc-7-1-12", event="resolved", state="resolved")
    for change in (born, letter(delivery="abc-7-1-9", event="replaying", state="replaying"), resolved, born):
        sink.deliver(change)

    (name,) = files_in(tmp_path)
    there = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    assert (there["event"], there["state"], there["delivery"]) == ("resolved", "resolved", "abc-7-1-12")


@pytest.mark.untraced
@pytest.mark.parametrize(
    "name",
    ["../../etc", "/etc/passwd", "..", ".", "a/../../b", "a\\..\\b", "a\0b", "~root", "-rf", ".hidden", "CON", "nul.txt",
     "x" * 5000, "ü/ö", "a\nb", "C:\\x", "trailing.", " "],
)  # fmt: skip
@pytest.mark.parametrize("field", ["pipeline", "stage", "delivery", "key"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, field: str, name: str) -> None:
    folder = tmp_path / "letters"
    Files(folder, layout="{pipeline}/{stage}/{identity}-{key}.json").deliver(
        letter(**{field: name, "message": ""})
    )

    (written,) = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert written.is_relative_to(folder)
    assert len(written.relative_to(folder).parts) == 3
    assert all(
        set(part) <= set(string.ascii_letters + "0123456789._-~")
        for part in written.relative_to(folder).parts
    )
    assert files_in(tmp_path) == [str(written.relative_to(tmp_path))]


def test_names_that_would_look_alike_stay_two() -> None:
    names = [
        "a/b",
        "a_b",
        "a\\b",
        "a:b",
        "x" * 200,
        "x" * 201,
        "CON",
        "con",
        "",
        ".",
        "..",
        "a.",
        "a",
        "\ud800",
    ]

    assert len({safe_name(name) for name in names}) == len(names)
    assert safe_name("7-1.json") == "7-1.json"
    assert safe_name("a b.json").endswith(".json")


@pytest.mark.parametrize("path", ["../out.json", "/out.json", "a/../../out.json", "", "///", "./."])
def test_a_function_may_say_where_but_not_outside(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "letters"
    Files(folder, layout=lambda _letter: path).deliver(LETTER)

    (written,) = files_in(tmp_path)
    assert written.startswith("letters/")


def test_a_layout_can_be_that_of_another_system(tmp_path: Path) -> None:
    Files(tmp_path, layout=lambda one: f"{one.stage}/dlq_{one.letter_id}.json").deliver(LETTER)

    assert files_in(tmp_path) == ["fetch/dlq_3.json"]


def test_a_form_can_be_that_of_another_system(tmp_path: Path) -> None:
    def form(one: SunkLetter) -> dict[str, object]:
        return {"dlq_id": f"dlq_{one.letter_id}", "why": one.message, "at": one.last_failure_at}

    sink = Files(tmp_path, layout=lambda one: f"{one.stage}/../dlq.json", form=form)
    sink.deliver(LETTER)
    sink.deliver(letter(message="again"))
    sink.deliver(letter(message="another", delivery="abc-7-2-1"))

    written = [tmp_path / name for name in files_in(tmp_path)]
    told = sorted((json.loads(file.read_bytes()) for file in written), key=lambda one: one["delivery"])
    assert [(one["why"], one["delivery"]) for one in told] == [
        ("again", "abc-7-1-1"),
        ("another", "abc-7-2-1"),
    ]
    assert list(told[0]) == ["dlq_id", "why", "at", "delivery"]
    assert told[0]["at"] == "2026-01-02T03:04:05Z"
    assert {stat.S_IMODE(file.stat().st_mode) for file in written} == {0o600}
    assert all(file.is_relative_to(tmp_path / "fetch") for file in written)


def test_a_form_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    Files(tmp_path).deliver(LETTER)

    with pytest.raises(ZeroDivisionError):
        Files(tmp_path, form=lambda one: {"never": 1 // (one.round - 1)}).deliver(LETTER)

    assert files_in(tmp_path) == ["shop/fetch/7-1.json"]
    assert json.loads((tmp_path / "shop/fetch/7-1.json").read_bytes())["code"] == "BUG_CODE"


def test_an_input_stands_in_a_file_when_there_is_one(tmp_path: Path) -> None:
    sink = Files(tmp_path, input="redacted")
    sink.deliver(letter(input=[1]))

    assert json.loads((tmp_path / "shop/fetch/7-1.json").read_bytes())["input"] == [1]
    assert sink.input == "redacted"


def test_a_file_of_ones_own_is_whole_private_and_in_folders_that_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    write_file(path, b"one")
    write_file(str(path), b"two")

    assert files_in(tmp_path) == ["a/b.json"]
    assert path.read_bytes() == b"two"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]


def test_no_letter_takes_the_place_of_another_or_of_a_file_that_is_none(tmp_path: Path) -> None:
    sink = Files(tmp_path, layout="{job_id}.json")
    (tmp_path / "8.json").write_text("mine", encoding="utf-8")
    sink.deliver(LETTER)
    second = letter(delivery="abc-7-2-1", round=2)
    sink.deliver(second)
    sink.deliver(second)
    sink.deliver(LETTER)
    sink.deliver(letter(job_id=8, delivery="abc-8-1-1"))

    assert len(files_in(tmp_path)) == 4
    assert (tmp_path / "8.json").read_text(encoding="utf-8") == "mine"
    assert json.loads((tmp_path / "7.json").read_text(encoding="utf-8"))["round"] == 1


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Files(tmp_path)
    sink.deliver(LETTER)

    def broken(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="No space"):
        sink.deliver(letter(message="new"))

    assert files_in(tmp_path) == ["shop/fetch/7-1.json"]
    assert json.loads((tmp_path / "shop/fetch/7-1.json").read_text(encoding="utf-8"))["message"] == "'x'"


def test_a_file_and_its_folder_are_durable_before_it_counts_as_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop/fetch").mkdir(parents=True)
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(file: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        fsync(file)

    def moved(self: Path, target: Path) -> Path:
        steps.append("move")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", moved)
    Files(tmp_path).deliver(LETTER)

    assert steps == ["file", "move", "folder"]


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "shop").symlink_to(outside)

    with pytest.raises(NotADirectoryError, match="symbolic link"):
        Files(folder).deliver(LETTER)
    assert list(outside.iterdir()) == []


def test_many_threads_write_the_same_and_other_letters_at_once(tmp_path: Path) -> None:
    sink = Files(tmp_path)
    letters = [letter(job_id=number, delivery=f"abc-{number}-1-1") for number in range(20)] * 4
    threads = [threading.Thread(target=sink.deliver, args=(each,)) for each in letters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(files_in(tmp_path)) == 20


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"layout": "{pipeline}.json"}, "must contain one of"),
        ({"layout": "{message}/{job_id}"}, "may contain, in plain braces"),
        ({"layout": "{job_id.__class__}"}, "may contain, in plain braces"),
        ({"layout": "{job_id!r}"}, "may contain, in plain braces"),
        ({"layout": "{job_id:>9}"}, "may contain, in plain braces"),
        ({"layout": "{job_id"}, "may contain, in plain braces"),
        ({"layout": "{}"}, "may contain, in plain braces"),
        ({"layout": 3}, "must be a text or a function"),
        ({"payload": "yes"}, "must be exclude or include"),
        ({"input": "yes"}, "must be exclude or redacted or include"),
        ({"form": {"a": 1}}, "must be a function of the letter"),
    ],
)
def test_what_can_not_work_is_refused_when_it_is_made(
    tmp_path: Path, options: dict[str, object], rule: str
) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        Files(tmp_path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("folder", ["", None, 3])
def test_a_folder_must_be_named(folder: object) -> None:
    with pytest.raises(ConfigurationError, match="must be the path of a folder"):
        Files(folder)  # type: ignore[arg-type]


def test_a_sink_says_what_it_is() -> None:
    assert repr(Files("x", name="mine")) == "Files('x', name='mine', payload='exclude')"
    assert (
        repr(Files(".", input="redacted")) == "Files('.', name='files', payload='exclude', input='redacted')"
    )
