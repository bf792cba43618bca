# SPDX-License-Identifier: Apache-2.0
"""Orders, patches, answers of the model, and ways to run the pipeline on them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
from pathlib import Path

from apps.criticizer.change import GitRange, Order, PatchUrl
from apps.criticizer.pipeline import Clients, flow, open_clients
from apps.criticizer.review import VERSION
from apps.criticizer.settings import Settings
from apps.criticizer.tests.servers import Upstream
from redrive import Pipeline
from redrive.engine.worker.worker import Worker
from redrive.store.protocol import Store
from redrive.testing import InlineResult, run_inline
from tests.inline import inline_parts

KEY = "sk-criticizer-test-0123456789abcdef"

PATCH = """\
diff --git a/prices.py b/prices.py
--- a/prices.py
+++ b/prices.py
@@ -1,2 +1,3 @@
 def total(prices):
-    return sum(prices)
+    password = "hunter2trooper"
+    return eval("sum(prices)")
"""

FINDING = {
    "severity": "error",
    "category": "security",
    "file": "prices.py",
    "line": 3,
    "message": "eval runs whatever it is given.",
}


def answer(*findings: object, version: str = VERSION) -> str:
    """Return a review as a model writes it."""
    return json.dumps({"version": version, "findings": list(findings)})


def order(upstream: Upstream, *notify: str) -> Order:
    """Return an order to review the patch that the server holds."""
    upstream.patch = PATCH
    upstream.say(answer(FINDING))
    return Order(PatchUrl(f"{upstream.url}/change.patch"), notify or ("webhook",))


def run(job: Order, settings: Settings, pipeline: Pipeline = flow) -> InlineResult:
    """Run the pipeline with the real clients, without waiting."""
    with open_clients(settings) as clients:
        return run_inline(pipeline, job, resources=[clients])


def served(settings: Settings) -> Pipeline:
    """Return the pipeline as a worker with these settings has it."""
    return Pipeline(
        flow.name,
        flow.stages,
        resources=[lambda: open_clients(settings)],
        on_dead=flow.hooks["dead"],
        codes=flow.codes,
    )


def work(store: Store, settings: Settings) -> None:
    """Let a worker do what is queued, in virtual time."""

    async def scene(clients: Clients) -> None:
        names = (f"w{number}" for number in itertools.count(1))
        worker = Worker(store, [flow], inline_parts(), names=names, resources={flow.name: [clients]})
        await worker.run(until_idle=True)

    with open_clients(settings) as clients:
        asyncio.run(scene(clients))


def make_repository(repo: Path, *contents: str) -> Path:
    """Make a repository with one commit for each content of prices.py."""
    repo.mkdir(parents=True)
    git(repo, "init", "--quiet", "--initial-branch=main")
    for text in contents or (
        "def total(prices):\n    return sum(prices)\n",
        "import os\n\n\ndef total(prices):\n    return eval('1')\n",
    ):
        (repo / "prices.py").write_text(text, encoding="utf-8")
        git(repo, "add", "--all")
        git(repo, "commit", "--quiet", "--message", "change")
    return repo


def git(repo: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{part}": "tester" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *arguments],
        cwd=repo,
        env={**os.environ, **who, **alone},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def last_change(repo: Path) -> Order:
    return Order(GitRange(str(repo), "HEAD~1..HEAD"))
