# SPDX-License-Identifier: Apache-2.0
"""Fetch a change from a local git repository, or as a patch over HTTP.

A repository never runs anything: git gets an argument list, an environment and settings of our own, and no transport. A patch is
fetched only from allowed hosts, uncompressed, without redirects to other hosts. Of both, only so much is read as the limit allows.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

import httpx
import msgspec
from msgspec.structs import replace

from apps.criticizer.change import Change, ChangedFile, GitRange, Order, PatchUrl, parse_patch
from apps.criticizer.clients.notify import PORTS, is_listed, recipient_problem
from apps.criticizer.settings import Settings
from redrive import Fail

BYTES_MAX: Final = 1_000_000
FILES_MAX: Final = 300
REDIRECTS_MAX: Final = 3
_QUIET: Final = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    # A bare repository among the files of a clone would bring its sender's settings.
    "safe.bareRepository=explicit",
)
_ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # A repository that lacks an object would have git fetch it, by whatever program its settings name. No transport has this name;
    # unlike protocol.allow, the variable cannot be overridden by the repository.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_DIFF: Final = (
    *("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
)


_HEADERS: Final = {
    "Accept": "text/x-patch, text/x-diff, text/plain",
    # What is compressed may be a thousand times as large.
    "Accept-Encoding": "identity",
}


def order_key(order: Order, settings: Settings) -> str:
    """Return a key that two orders share if they ask for the same review: of the same commits or URL, for the same recipients."""
    source = order.source
    subject = [source.url] if isinstance(source, PatchUrl) else [source.repo, source.range]
    if isinstance(source, GitRange):
        # A branch moves on: then the same range is another change. A range that cannot be resolved is refused by the first stage.
        with suppress(Fail, OSError, subprocess.SubprocessError):
            subject = [source.repo, *_ends_of(source, settings)]
    asked = msgspec.json.encode([subject, sorted({*order.notify})])
    return f"order-{hashlib.sha256(asked).hexdigest()[:32]}"


def fetch_change(order: Order, settings: Settings, http: httpx.Client) -> Change:
    """Return the change of an order, whose recipients are checked first: before anything is fetched, and the model asked."""
    for recipient in order.notify:
        if (problem := recipient_problem(recipient)) is not None:
            raise Fail(code="SCHEMA_INVALID", message=f"notify: {problem}")
    if isinstance(order.source, GitRange):
        return Change(f"Review of {order.source.range}", order.notify, _from_git(order.source, settings))
    url = order.source.url
    text = _download(url, settings, http)
    files = parse_patch(text)
    if not files and text.strip():
        raise Fail(code="CHANGE_NOT_FOUND", message="there is no diff at this URL")
    return Change(f"Review of {urlsplit(url).path}", order.notify, files)


def _ends_of(source: GitRange, settings: Settings) -> tuple[str, str]:
    """Return the two commits of a range."""
    first, dots, last = source.range.partition("..")
    if not dots or last.startswith("."):
        raise Fail(code="CHANGE_NOT_FOUND", message="the range must be A..B")
    if "\0" in source.repo or "\0" in source.range:
        raise Fail(code="SCHEMA_INVALID", message="a path or a range contains a NUL")
    folder = Path(source.repo).resolve()
    if settings.roots and not any(folder.is_relative_to(Path(root).resolve()) for root in settings.roots):
        raise Fail(code="SOURCE_DENIED", message="the repository is not below a folder of CRITICIZER_ROOTS")
    if not folder.is_dir():
        raise Fail(code="CHANGE_NOT_FOUND", message="there is no repository at this path")
    old, new = (_revision(source.repo, name or "HEAD", settings) for name in (first, last))
    return old, new


def _from_git(source: GitRange, settings: Settings) -> tuple[ChangedFile, ...]:
    old, new = _ends_of(source, settings)
    try:
        files = parse_patch(_git(source.repo, "diff", *_DIFF, old, new, "--", settings=settings))
    except subprocess.CalledProcessError:
        problem = "the repository lacks objects of this range, or is damaged"
        raise Fail(code="CHANGE_NOT_FOUND", message=problem) from None
    if len(files) > FILES_MAX:
        raise Fail(code="TOO_LARGE", message=f"more than {FILES_MAX} files are changed")
    # The linter needs whole files; the model gets only the patch.
    is_linted = not settings.llm_key
    return tuple(
        _with_content(file, source.repo, new, settings) if is_linted and file.path.endswith(".py") else file
        for file in files
    )


def _with_content(file: ChangedFile, repo: str, revision: str, settings: Settings) -> ChangedFile:
    try:
        content = _git(repo, "cat-file", "blob", f"{revision}:{file.path}", settings=settings)
    except Fail:  # a huge file must not prevent linting the others
        return file
    return replace(file, content=content)


def _revision(repo: str, name: str, settings: Settings) -> str:
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    try:
        return _git(repo, *asked, settings=settings).strip()
    except subprocess.CalledProcessError:
        problem = f"there is no revision {name} in this repository"
        raise Fail(code="CHANGE_NOT_FOUND", message=problem) from None


def _git(repo: str, *arguments: str, settings: Settings) -> str:
    """Run git without a shell and return what it prints; raises Fail when that is too much, and CalledProcessError."""
    quiet = [part for setting in _QUIET for part in ("-c", setting)]
    command = ["git", *quiet, *arguments]
    with subprocess.Popen(  # noqa: S603 - an argument list; names given by people follow --end-of-options or were resolved by it.
        command,
        cwd=repo,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT},
    ) as process:
        timer = threading.Timer(settings.timeout_seconds, process.kill)
        timer.start()
        try:
            output = process.stdout.read(BYTES_MAX + 1) if process.stdout is not None else b""
        finally:
            timer.cancel()
            # One that has more to print than is read would wait for ever.
            if process.stdout is not None:
                process.stdout.close()
        is_cut = len(output) > BYTES_MAX
        if is_cut:
            process.kill()
    if timer.finished.is_set() and not is_cut and process.returncode == -signal.SIGKILL:
        raise subprocess.TimeoutExpired(command, settings.timeout_seconds)
    if is_cut:
        raise Fail(code="TOO_LARGE", message=f"the diff has more than {BYTES_MAX:,} bytes")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return output.decode("utf-8", "replace")


def _download(address: str, settings: Settings, http: httpx.Client) -> str:
    url = _allowed(address, settings)
    for _ in range(REDIRECTS_MAX + 1):
        with http.stream("GET", url, headers=_HEADERS) as answer:
            if not answer.has_redirect_location:
                return _limited(answer, settings.timeout_seconds)
            target = _allowed(urljoin(str(url), answer.headers["location"]), settings)
        if (target.scheme, target.netloc) != (url.scheme, url.netloc):
            raise Fail(code="SOURCE_DENIED", message="the URL redirects to another host")
        url = target
    raise Fail(code="SOURCE_DENIED", message=f"the URL redirects more than {REDIRECTS_MAX} times")


def _allowed(address: str, settings: Settings) -> httpx.URL:
    """Check an address, and return it as the client parses it, so that exactly the checked address is requested."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        raise Fail(code="SOURCE_DENIED", message="the URL is invalid") from None
    if url.scheme not in PORTS or url.userinfo or not is_listed(url, settings.hosts):
        problem = "the URL is not http or https, contains a password, or its host is not allowed"
        raise Fail(code="SOURCE_DENIED", message=problem)
    return url


def _limited(answer: httpx.Response, seconds_max: float) -> str:
    """Read a response up to the limits of size and time; its Content-Length is not trusted."""
    answer.raise_for_status()
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Fail(code="SCHEMA_INVALID", message="the patch is compressed, although that was not asked for")
    taken = bytearray()
    end_at = time.monotonic() + seconds_max
    for part in answer.iter_bytes():
        taken += part
        if len(taken) > BYTES_MAX:
            raise Fail(code="TOO_LARGE", message=f"the patch is larger than {BYTES_MAX:,} bytes")
        # The client's own limit is per read; a server that sends a byte now and then would never reach it.
        if time.monotonic() > end_at:
            problem = "the patch takes too long to arrive"
            raise httpx.ReadTimeout(problem, request=answer.request)
    return taken.decode("utf-8", "replace")
