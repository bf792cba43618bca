# SPDX-License-Identifier: Apache-2.0
"""Limits from the command line."""

from __future__ import annotations

import shlex

from tests.e2e.shell import Shell

LIMITED = """
from redrive import Limit, Pipeline, stage

@stage(limits=[Limit("model", rate="600/min", burst=5), Limit("tenant", concurrency=2, key=lambda job: job.owner)])
def ask(number: int) -> int:
    return number

asking = Pipeline("asking", [ask])
"""


def test_a_limit_is_listed_set_paused_and_resumed(shell: Shell) -> None:
    (shell.folder / "limited.py").write_text(LIMITED, encoding="utf-8")
    shell("submit", "limited:asking", "5")
    assert shell("worker", "limited:asking", "--until-idle").code == 0

    names = [(each["name"], each["key"], each["rate"]) for each in shell.json("limit", "list")]
    assert ("model", "", "10/s") in names
    assert shell.json("limit", "set", "model", "--rate", "2/s", "--burst", "1")["rate"] == "2/s"
    assert shell.json("limit", "set", "model")["is_set"] is False
    assert shell.json("limit", "pause", "model", "--yes", "--reason", "too many bills")["status"] == "paused"

    shell("submit", "limited:asking", "6")
    assert shell("worker", "limited:asking", "--until-idle").code == 3
    assert shell.json("stats")["limited"][0]["limit"] == "model"
    assert "is paused by hand" in shell("stats").out
    assert "limit model, which is paused by hand" in shell("job", "explain", "2").out
    assert "redrive limit resume model" in shell("doctor").out

    assert shell.json("limit", "resume", "model")["status"] == "open"
    assert shell("worker", "limited:asking", "--until-idle").code == 0
    assert "limit model" in shell("events", "--operations").out


def test_a_key_that_is_paused_is_resumed_by_the_command_that_doctor_names(shell: Shell) -> None:
    (shell.folder / "limited.py").write_text(LIMITED, encoding="utf-8")
    shell("submit", "limited:asking", "5", "--owner", "it's ada")
    assert shell("worker", "limited:asking", "--until-idle").code == 0
    assert shell("limit", "pause", "tenant", "--key", "it's ada", "--yes").code == 0

    _, _, advice = shell("doctor").out.partition("To start them again: redrive ")
    command = shlex.split(advice.splitlines()[0].removesuffix("."))

    resumed = shell.json(*command)
    assert (resumed["key"], resumed["status"]) == ("it's ada", "open")


def test_wrong_limits_are_refused(shell: Shell) -> None:
    (shell.folder / "limited.py").write_text(LIMITED, encoding="utf-8")
    shell("submit", "limited:asking", "5")
    shell("worker", "limited:asking", "--until-idle")

    # Before it asks anything, or refuses to go on because nobody can answer.
    unknown = shell("limit", "pause", "modelx")
    wrong = shell("limit", "set", "model", "--rate", "fast")

    assert (unknown.code, wrong.code) == (1, 2)
    assert "Did you mean model?" in unknown.err
    assert "500/min" in wrong.err
