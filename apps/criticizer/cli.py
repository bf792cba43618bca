# SPDX-License-Identifier: Apache-2.0
"""The commands: `review` and `submit-url` submit, `watch` works, `demo` runs on a sample repository.

The same order twice is one review. Exit codes: 0 done; 1 the review failed and is a dead letter; 2 wrong usage. The `redrive`
command, on the same database, lists, triages and replays dead letters.
"""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from apps.criticizer.change import GitRange, Order, PatchUrl
from apps.criticizer.clients.fetch import order_key
from apps.criticizer.clients.notify import recipient_problem
from apps.criticizer.pipeline import flow
from apps.criticizer.settings import Settings
from apps.tracing import trace_if_configured
from redrive import RedriveError, connect, redact

app = typer.Typer(
    name="criticizer",
    help="Review a change and notify people.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Database = Annotated[
    str | None,
    typer.Option(
        "--database-url", help="The database of the jobs; default: REDRIVE_DATABASE_URL, redrive.db"
    ),
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        metavar="RECIPIENT",
        help="Whom to notify: terminal, webhook, webhook:URL or smtp:ADDRESS; may be repeated. Default: terminal.",
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Review it again, although the same order was done.")]
Queue = Annotated[bool, typer.Option("--queue", help="Only submit it; `criticizer watch` does the work.")]

GOOD: Final = "def total(prices):\n    return sum(prices)\n"
BAD: Final = 'import os\n\n\ndef total(prices, seen=[]):\n    try:\n        return eval("sum(prices)")\n    except:\n        pass\n'


@app.command()
def review(
    *,
    repo: Annotated[Path, typer.Option("--repo", help="The repository.")] = Path(),
    revisions: Annotated[str, typer.Option("--range", metavar="A..B", help="The change.")] = "HEAD~1..HEAD",
    notify: Notify = None,
    queue: Queue = False,
    again: Again = False,
    database_url: Database = None,
) -> None:
    """Review a range of revisions of a git repository."""
    source = GitRange(str(repo.absolute()), revisions)
    _submit(Order(source, _recipients(notify)), database_url, is_queued=queue, is_again=again)


@app.command()
def submit_url(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The patch; its host must be in CRITICIZER_HOSTS.")
    ],
    *,
    notify: Notify = None,
    queue: Queue = False,
    again: Again = False,
    database_url: Database = None,
) -> None:
    """Review a patch on a server."""
    _submit(Order(PatchUrl(url), _recipients(notify)), database_url, is_queued=queue, is_again=again)


@app.command()
def watch(
    *,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is queued.")] = False,
    concurrency: Annotated[
        int, typer.Option("--concurrency", help="The number of stages that run at the same time.")
    ] = 16,
    lease: Annotated[
        float, typer.Option("--lease", help="Seconds until a silent worker counts as dead.")
    ] = 30.0,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option("--log-level", case_sensitive=False, help="How much is logged."),
    ] = "info",
    database_url: Database = None,
) -> None:
    """Work on submitted reviews until stopped."""
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)-8s %(name)s: %(message)s")
    with connect(database_url) as rd:
        rd.work([flow], until_idle=until_idle, concurrency=concurrency, lease=lease)


@app.command()
def demo(
    *,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Keep the repository and the jobs here.")
    ] = None,
) -> None:
    """Create a small repository with a bad change, and review it: no network, no key, no settings."""
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        repo = place / "example"
        _make_repository(repo)
        order = Order(GitRange(str(repo.absolute()), "HEAD~1..HEAD"))
        _submit(order, str(place / "demo.db"), is_queued=False, is_again=False)


def _recipients(given: list[str] | None) -> tuple[str, ...]:
    """Return whom to notify; refuse what cannot be a recipient."""
    for recipient in given or ():
        if (problem := recipient_problem(recipient)) is not None:
            wrong = f"{redact(recipient)!r}: {problem}"
            raise typer.BadParameter(wrong, param_hint="--notify")
    return tuple(given or ("terminal",))


def _submit(order: Order, database_url: str | None, *, is_queued: bool, is_again: bool) -> None:
    """Submit an order and, unless it is only queued, work on it; exit with 1 when the review failed."""
    settings = Settings.read()
    if not is_queued and "webhook" in order.notify and not settings.webhook_url:
        wrong = "'webhook' needs CRITICIZER_WEBHOOK_URL"
        raise typer.BadParameter(wrong, param_hint="--notify")
    with connect(database_url) as rd:
        job = rd.submit(flow, order, key=None if is_again else order_key(order, settings))
        if job.is_duplicate and job.status == "complete":
            typer.echo(f"job {job.id} has reviewed this already: use --again to review it once more")
            return
        if is_queued:
            typer.echo(f"job {job.id} is queued: run criticizer watch to work on it")
            return
        rd.work([flow], until_idle=True)
        ended = job.facts
    if ended.status != "complete":
        typer.echo(f"{ended.error_code}: {ended.error_message}", err=True)
        typer.echo(f"job {job.id} is {ended.status}: for details: redrive job show {job.id}", err=True)
        raise typer.Exit(1)


def _make_repository(repo: Path) -> None:
    repo.mkdir(parents=True)
    _git(repo, "init", "--quiet")
    for text, subject in ((GOOD, "Add up prices"), (BAD, "Add them up faster")):
        (repo / "prices.py").write_text(text, encoding="utf-8")
        _git(repo, "add", "prices.py")
        _git(repo, "commit", "--quiet", "--message", subject)


def _git(repo: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Criticizer", "-c", "user.email=criticizer@localhost")
    alone = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *who, *arguments], cwd=repo, env=alone, check=True)  # noqa: S603, S607 - fixed arguments.


def main() -> None:
    """Run the command line."""
    trace_if_configured()
    try:
        app()
    except RedriveError as error:
        typer.echo(f"error: {redact(str(error))}", err=True)
        raise SystemExit(2) from None
