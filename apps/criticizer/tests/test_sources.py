# SPDX-License-Identifier: Apache-2.0
"""Where changes may come from, and what is refused: hosts, redirects, sizes, ranges that are options, hostile repositories."""

from __future__ import annotations

import gzip
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from apps.criticizer.change import GitRange, Order, PatchUrl, parse_patch
from apps.criticizer.clients import fetch
from apps.criticizer.settings import Settings
from apps.criticizer.tests.scenes import PATCH, git, last_change, make_repository, order, run
from apps.criticizer.tests.servers import Fault, Upstream


def code_of(source: GitRange | PatchUrl, settings: Settings) -> str | None:
    result = run(Order(source), settings)
    return None if result.letter is None else result.letter.code


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/x.patch",
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:1/x.patch",
        "http://{address}@evil.example/x.patch",
        "http://user:pw@{address}/x.patch",
        "http://{address}.evil.example/x.patch",
        "http://127.0.0.1:99999999/x.patch",
        "//{address}/x.patch",
        "",
    ],
)
def test_a_patch_comes_only_from_hosts_on_the_list(upstream: Upstream, settings: Settings, url: str) -> None:
    order(upstream)

    assert code_of(PatchUrl(url.format(address=upstream.address)), settings) == "SOURCE_DENIED"
    assert upstream.asked == {}


def test_a_host_without_a_port_means_the_usual_ports(upstream: Upstream, settings: Settings) -> None:
    bare = replace(settings, hosts=frozenset({"127.0.0.1"}))

    assert code_of(PatchUrl(f"{upstream.url}/change.patch"), bare) == "SOURCE_DENIED"


@pytest.mark.parametrize("host", ["git.example", "git.example:80"])
@pytest.mark.parametrize("address", ["http://git.example/x.patch", "http://GIT.example:80/x.patch"])
def test_the_usual_port_may_be_named_or_not(settings: Settings, host: str, address: str) -> None:
    allowing = replace(settings, hosts=frozenset({host}))
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, text=PATCH))) as http:
        change = fetch.fetch_change(Order(PatchUrl(address)), allowing, http)

    assert [file.path for file in change.files] == ["prices.py"]


def test_a_redirect_to_another_host_is_not_followed_even_when_that_host_is_on_the_list(
    upstream: Upstream, settings: Settings
) -> None:
    job = order(upstream)
    with Upstream() as other:
        upstream.fail("/change.patch", Fault(302, {"Location": f"{other.url}/change.patch"}))
        result = run(job, replace(settings, hosts=settings.hosts | {other.address}))
        assert other.asked == {}

    assert result.letter is not None
    assert (result.letter.code, result.letter.reason) == ("SOURCE_DENIED", "asked")


def test_a_redirect_on_the_same_host_is_followed_but_not_for_ever(
    upstream: Upstream, settings: Settings
) -> None:
    job = order(upstream)
    upstream.fail("/change.patch", Fault(301, {"Location": "/moved.patch"}))
    assert run(job, settings).status == "complete"

    upstream.fail("/change.patch", Fault(302, {"Location": "/change.patch"}), times=9)
    before = upstream.calls("/change.patch")
    assert code_of(PatchUrl(f"{upstream.url}/change.patch"), settings) == "SOURCE_DENIED"
    assert upstream.calls("/change.patch") - before == fetch.REDIRECTS_MAX + 1


def test_a_patch_that_is_too_large_is_not_read_to_its_end(upstream: Upstream, settings: Settings) -> None:
    job = order(upstream)
    upstream.patch = "+" * (fetch.BYTES_MAX + 1)

    result = run(job, settings)

    assert result.letter is not None
    assert (result.letter.code, len(result.attempts)) == ("TOO_LARGE", 1)


def test_a_patch_that_never_ends_is_a_timeout_and_tried_again(upstream: Upstream, settings: Settings) -> None:
    job = order(upstream)
    upstream.fail("/change.patch", Fault(how="trickle"))

    result = run(job, replace(settings, timeout_seconds=0.3))

    assert [(each.outcome, each.code) for each in result.attempts][:2] == [
        ("retry", "NETWORK_TIMEOUT"),
        ("ok", None),
    ]


def test_a_page_that_is_no_patch_is_said_to_be_none(upstream: Upstream, settings: Settings) -> None:
    job = order(upstream)
    upstream.patch = "<html>sign in</html>"

    result = run(job, settings)

    assert result.letter is not None
    assert result.letter.code == "CHANGE_NOT_FOUND"


@pytest.mark.req("CR-1.7")
@pytest.mark.parametrize(
    "revisions",
    [
        "HEAD~1..nowhere",
        "HEAD",
        "HEAD...HEAD",
        "--output=pwned..HEAD",
        "HEAD~1..--output=pwned",
        "HEAD~1..$(touch pwned)",
    ],
)
def test_a_range_that_is_not_there_or_is_no_range_is_final(repo: Path, revisions: str) -> None:
    assert code_of(GitRange(str(repo), revisions), Settings()) == "CHANGE_NOT_FOUND"
    assert sorted(path.name for path in repo.iterdir()) == [".git", "prices.py"]


@pytest.mark.req("CR-1.7")
def test_a_folder_that_is_no_repository_is_final(tmp_path: Path) -> None:
    assert code_of(GitRange(str(tmp_path / "nothing"), "HEAD~1..HEAD"), Settings()) == "CHANGE_NOT_FOUND"


def test_a_repository_cannot_make_git_run_anything(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n", encoding="utf-8")
    trap.chmod(0o755)
    for name in ("diff.external", "core.fsmonitor", "diff.evil.textconv", "diff.evil.command", "core.pager"):
        git(repo, "config", name, str(trap))
    (repo / ".gitattributes").write_text("*.py diff=evil\n", encoding="utf-8")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))

    result = run(last_change(repo), Settings())

    assert result.status == "complete"
    assert not (tmp_path / "sprung").exists()


def test_names_with_spaces_signs_and_letters_of_any_language_are_read(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "r", "x = 1\n")
    for name in ("-rf.py", "a b.py", "가격.py", 'q"uote.py', "b/deep.py"):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("import os\n", encoding="utf-8")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "names")

    result = run(last_change(repo), Settings())

    assert result.status == "complete"
    assert {each.file for each in result.value.findings} == {  # type: ignore[attr-defined]
        "-rf.py",
        "a b.py",
        "가격.py",
        'q"uote.py',
        "b/deep.py",
    }


def test_a_change_that_changes_nothing_to_review_has_no_findings(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "r", "x = 1\n")
    git(repo, "commit", "--quiet", "--allow-empty", "--message", "nothing")

    result = run(last_change(repo), Settings())

    assert (result.status, result.value.findings) == ("complete", ())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("limit", "value"), [("BYTES_MAX", 10), ("FILES_MAX", 0)])
def test_a_change_in_git_that_is_too_large_is_final(
    repo: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(fetch, limit, value)

    assert code_of(GitRange(str(repo), "HEAD~1..HEAD"), Settings()) == "TOO_LARGE"


def test_one_huge_file_is_left_out_and_the_others_are_linted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_repository(tmp_path / "r", "# filler\n" * 200, "# filler\n" * 200 + "import os\n")
    (repo / "small.py").write_text("import os\n", encoding="utf-8")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--amend", "--no-edit")
    monkeypatch.setattr(fetch, "BYTES_MAX", 1_000)

    result = run(last_change(repo), Settings())

    assert [each.file for each in result.value.findings] == ["small.py"]  # type: ignore[attr-defined]
    assert result.notes["files_not_read"] == "1"


@pytest.mark.parametrize("url", ["ext::{trap}", "file://{folder}/bait", "{folder}/bait", "ssh://host/bait"])
def test_a_repository_with_a_missing_object_cannot_make_git_fetch_it(
    repo: Path, tmp_path: Path, url: str
) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n", encoding="utf-8")
    trap.chmod(0o755)
    make_repository(tmp_path / "bait")
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": url.format(trap=trap, folder=tmp_path),
        "remote.origin.promisor": "true",
        "remote.origin.uploadPack": str(trap),
        "protocol.ext.allow": "always",
        "protocol.file.allow": "always",
        "core.sshCommand": str(trap),
    }.items():
        git(repo, "config", name, value)
    blob = git(repo, "rev-parse", "HEAD:prices.py").strip()
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()

    assert code_of(GitRange(str(repo), "HEAD~1..HEAD"), Settings()) == "CHANGE_NOT_FOUND"
    assert not (tmp_path / "sprung").exists()


def test_a_bare_repository_among_the_files_of_a_clone_is_not_used(repo: Path, tmp_path: Path) -> None:
    """Whoever sends a change chooses what lies in its folders; its settings would be those of the sender."""
    git(repo, "clone", "--quiet", "--bare", str(repo), str(repo / "vendored"))

    assert code_of(GitRange(str(repo / "vendored"), "HEAD~1..HEAD"), Settings()) == "CHANGE_NOT_FOUND"


def test_git_gets_no_secret_of_the_worker(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    spy = tmp_path / "bin" / "git"
    real = shutil.which("git")
    spy.write_text(f'#!/bin/sh\nenv >> {tmp_path}/seen\nexec {real} "$@"\n', encoding="utf-8")
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PAYMENT_TOKEN", "hush-hush-hush")

    assert run(last_change(repo), Settings()).status == "complete"

    assert "hush-hush-hush" not in (tmp_path / "seen").read_text(encoding="utf-8")


def test_repositories_outside_the_configured_roots_are_refused(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "allowed").mkdir()
    outside = replace(Settings(), roots=frozenset({str(tmp_path / "allowed")}))
    (tmp_path / "allowed" / "link").symlink_to(repo)

    assert code_of(GitRange(str(repo), "HEAD~1..HEAD"), outside) == "SOURCE_DENIED"
    assert code_of(GitRange(str(tmp_path / "allowed" / "link"), "HEAD~1..HEAD"), outside) == "SOURCE_DENIED"
    assert (
        code_of(GitRange(str(repo), "HEAD~1..HEAD"), replace(outside, roots=frozenset({str(tmp_path)})))
        is None
    )


def test_what_git_prints_is_read_only_up_to_the_limit_and_never_written(tmp_path: Path) -> None:
    """A small repository can hold gigabytes of the same byte."""
    repo = make_repository(tmp_path / "r", "x = 1\n", "x" * 50_000_000)
    tracemalloc.start()
    try:
        code = code_of(GitRange(str(repo), "HEAD~1..HEAD"), Settings())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert code == "TOO_LARGE"
    assert peak < 20_000_000


@pytest.mark.parametrize(
    "source", [GitRange("/tmp\0", "a..b"), GitRange(".", "HEAD\0..HEAD"), GitRange(".", "a..b\0")]
)
def test_a_nul_is_bad_input_and_pages_nobody(source: GitRange) -> None:
    assert code_of(source, Settings()) == "SCHEMA_INVALID"


def test_a_hunk_with_an_endless_number_is_no_hunk() -> None:
    digits = "9" * 5_000

    assert parse_patch(f"--- a/x\n+++ b/x\n@@ -1,{digits} +1 @@\n+x\n") == ()


def test_parsing_takes_time_in_proportion_to_the_patch() -> None:
    """Counted in hunks that are copied, not in seconds."""
    hunks = "".join(f"@@ -{number},0 +{number},1 @@\n+x\n" for number in range(1, 20_001))

    (file,) = parse_patch(f"--- /dev/null\n+++ b/x.py\n{hunks}")

    assert len(file.lines) == 20_000
    assert file.content == "x\n" * 20_000


@pytest.mark.parametrize("status", [200, 503])
def test_a_compressed_patch_is_not_unpacked(upstream: Upstream, settings: Settings, status: int) -> None:
    job = order(upstream)
    bomb = gzip.compress(b"0" * 30_000_000)
    upstream.fail("/change.patch", Fault(status, {"Content-Encoding": "gzip"}, body=bomb), times=9)
    tracemalloc.start()
    try:
        result = run(job, settings)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert result.letter is not None
    assert result.letter.code == ("SCHEMA_INVALID" if status == 200 else "NETWORK_TRANSIENT")
    assert peak < 20_000_000


HEAD = "--- a/x\n+++ b/x\n"
HOSTILE: Mapping[str, Callable[[int], str]] = {
    "headers of files": lambda size: f"{HEAD}@@ -1,1 +1,1 @@\n" * (size // 32),
    "empty hunks": lambda size: HEAD + "@@ -1,0 +1,0 @@\n" * (size // 16),
    "one endless hunk": lambda size: f"{HEAD}@@ -1,99999999 +1,99999999 @@\n" + "+\n" * (size // 2),
    "marks without lines": lambda size: f"{HEAD}@@ -1,99999999 +1,99999999 @@\n" + "\\\n" * (size // 2),
    "a quoted path": lambda size: '+++ "' + "\\777" * (size // 4) + '"\n',
    "the same new file": lambda size: "--- /dev/null\n+++ b/x\n" + "@@ -0,0 +1 @@\n+a\n" * (size // 17),
    "many files": lambda size: "".join(f"+++ b/{n}\n@@ -0,0 +1 @@\n+\n" for n in range(size // 28)),
}


@pytest.mark.parametrize("patch", HOSTILE.values(), ids=HOSTILE)
def test_parsing_a_hostile_patch_takes_linear_time(patch: Callable[[int], str]) -> None:
    # Four times the patch: four times the time if it is linear, sixteen times if it is quadratic.
    assert seconds_for(patch(256 * 1024)) < 9 * seconds_for(patch(64 * 1024))


def seconds_for(text: str) -> float:
    """Return the processor time of parsing a patch, the least of a few times."""
    found: list[float] = []
    for _ in range(5):
        begun = time.process_time()
        parse_patch(text)
        found.append(time.process_time() - begun)
    return min(found)
