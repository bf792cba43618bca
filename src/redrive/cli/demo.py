# SPDX-License-Identifier: Apache-2.0
"""`redrive demo`: guard on calls to a flaky server, told line by line as it happens.

The server is real and so are the failures: refused and reset connections, 503s, rate limits, a spent quota, bad credentials, a bug
of our own. Nothing is scripted on our side but the order of the scenes; every line shown comes from a guard's hook.
"""

from __future__ import annotations

import socket
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from redrive.cli.flaky import OK, RESET, Answer, FlakyServer
from redrive.core.backoff import Backoff, Jitter
from redrive.core.breaker import Breaker
from redrive.core.policy import RetryPolicy
from redrive.engine.guard import Guard, GuardOptions, guard
from redrive.engine.runtime import CURRENT
from redrive.engine.story import CallEvent
from redrive.errors import BreakerOpenError
from redrive.redaction import redact
from redrive.testing import virtual_time

_DOWN = Answer(503, {"error": {"message": "warming up"}})
_SCRIPTS = {
    "/flaky": [_DOWN, RESET, OK],
    "/limited": [Answer(429, {"error": {"code": "rate_limit_exceeded"}}, {"Retry-After": "2"}), OK],
    "/quota": [Answer(402, {"error": {"code": "insufficient_quota"}})],
    "/secret": [Answer(401, {"error": {"code": "invalid_api_key"}})],
    "/down": [_DOWN, _DOWN, _DOWN, _DOWN, OK],
    "/orders/17": [Answer(404, {"error": {"code": "not_found"}})],
}
_STYLES = {"retry": "yellow", "hold": "cyan", "dead": "red"}
_VERBS = {"retry": "retried", "hold": "held", "dead": "given up"}


@dataclass(slots=True)
class Story:
    """What has been told so far."""

    console: Console
    started_at: float
    counts: Counter[str] = field(default_factory=Counter)
    outcomes: list[tuple[str, str, str, str]] = field(default_factory=list)

    def tell(self, event: CallEvent) -> None:
        """Show one retry, hold or giving up as it happens."""
        self.counts[event.kind] += 1
        what = (
            f"{event.failure.code} ({event.failure.category})" if event.failure else "refused by the breaker"
        )
        line = Text(f"  {self._elapsed():6.2f} s  ", style="dim")
        line.append(f"{_VERBS[event.kind]:9}", style=_STYLES[event.kind])
        line.append(f"{what:34}", style="bold")
        line.append(redact(event.sentence), style="default")
        self.console.print(line, soft_wrap=True)

    def scene(self, title: str, why: str, call: Callable[[], object]) -> None:
        """Play one scene: announce it, make the call, note how it ended."""
        self.console.print(f"\n[bold]{title}[/]  [dim]{why}[/]")
        before = self.counts.copy()
        try:
            call()
        except BreakerOpenError as refused:
            ended, reason = "refused", str(refused)
        except Exception as exc:  # noqa: BLE001 - whatever the guard lets out at the end is what the scene shows.
            ended, reason = "given up", f"{type(exc).__name__}: {redact(str(exc))}"
        else:
            ended, reason = "succeeded", ""
        steps = self.counts - before
        self.outcomes.append((title, ended, f"{steps['retry']} retried, {steps['hold']} held", reason))
        style = "green" if ended == "succeeded" else "red"
        self.console.print(
            f"  {self._elapsed():6.2f} s  [{style}]{ended}[/] [dim]{reason}[/]", soft_wrap=True
        )

    def end(self) -> None:
        """Show the account of every call."""
        table = Table(title="Every call, accounted for", title_justify="left", header_style="bold")
        for name in ("call", "outcome", "on the way", "what the caller saw"):
            table.add_column(name, overflow="fold")
        for row in self.outcomes:
            table.add_row(*row)
        self.console.print()
        self.console.print(table)
        ended = Counter(outcome for _, outcome, _, _ in self.outcomes)
        self.console.print(
            f"{len(self.outcomes)} calls = {ended['succeeded']} succeeded + {ended['given up']} given up "
            f"+ {ended['refused']} refused; {self.counts['retry']} retries, {self.counts['hold']} holds."
        )

    def _elapsed(self) -> float:
        return CURRENT.get().clock.monotonic() - self.started_at


def play(console: Console, *, instant: bool = False) -> None:
    """Play the demo on this console; `instant` lets waits pass on a virtual clock."""
    with ExitStack() as stack:
        if instant:
            stack.enter_context(virtual_time())
        server = stack.enter_context(FlakyServer(_SCRIPTS).running())
        console.print(f"A flaky server runs on {server.url}; guard is put on calls to it.", highlight=False)
        story = Story(console, CURRENT.get().clock.monotonic())
        _play_scenes(story, server.url)
        story.end()


def _play_scenes(story: Story, url: str) -> None:
    def get(address: str) -> bytes:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - always our own loopback server.
                content: bytes = answer.read()
        except OSError as exc:
            said = f"GET {address}: {exc}"
            raise RuntimeError(said) from exc
        return content

    def bug() -> int:
        return len(None)  # type: ignore[arg-type]  # the bug is the point.

    retrying = _guard(story)
    fetch = retrying(get)
    failing_fast = _guard(story, Breaker("dead host", consecutive=2, open_for=60, mode="fail_fast"))
    story.scene("A flaky service", "503, then a reset connection, then fine", lambda: fetch(f"{url}/flaky"))
    story.scene("A rate limit", "429 with Retry-After: 2, which is kept", lambda: fetch(f"{url}/limited"))
    story.scene("A spent quota", "402: no waiting heals that", lambda: fetch(f"{url}/quota"))
    story.scene(
        "Bad credentials",
        "401; the key in the URL stays out of sight",
        lambda: fetch(f"{url}/secret?api_key=demo-0123456789abcdef"),
    )
    story.scene("Something deleted", "404: not there, for good", lambda: fetch(f"{url}/orders/17"))
    story.scene("A bug of our own", "TypeError: trying again cannot help", retrying(bug))
    holding = _guard(story, Breaker("service", consecutive=2, open_for=2))
    held = holding(get)
    story.scene(
        "A service that is down",
        "the breaker opens; calls are held, no attempt is burned",
        lambda: held(f"{url}/down"),
    )
    dead = failing_fast(get)
    nowhere = f"http://127.0.0.1:{_closed_port()}/"
    story.scene("A host that is gone", "refused twice: a fail-fast breaker opens", lambda: dead(nowhere))
    story.scene("The same host again", "refused at once, without a call", lambda: dead(nowhere))


def _guard(story: Story, breaker: Breaker | None = None) -> Guard:
    retry = RetryPolicy(4, Backoff.exponential(0.5, cap=4, jitter=Jitter.ratio(0.2)))
    options = GuardOptions(retry=retry, on_retry=story.tell, on_hold=story.tell, on_dead=story.tell)
    if breaker is not None:
        options["breaker"] = breaker
    return guard(**options)


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
