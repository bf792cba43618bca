# SPDX-License-Identifier: Apache-2.0
"""Why something was decided about an attempt, and what would have been decided otherwise; told from the decision on record.

Who decided, the classifier or the policy, stands in the sentence of the decision and not in its reason: a policy may retry what
counts as permanent, and may not retry what counts as retryable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from redrive.core.decide import BY_POLICY, NOT_RETRIED_ELSE, RETRIED_ELSE
from redrive.core.diagnosis import can_heal

Attempt = Mapping[str, object]
"""One attempt as the store tells it."""

_OF: Final = re.compile(r"^attempt (?P<attempt>\d+) of (?P<most>\d+) ")
"""How sentences of decisions begin that tell the policy's limit."""
_RULING: Final = re.compile(
    rf": (?P<said>{'|'.join(map(re.escape, BY_POLICY))}), (?P<link>and|though) it counts as (?P<kind>retryable|permanent)"
)
"""How they tell that the policy's `retry_on` decided."""
_BECAME: Final = {
    "ok": "It was done.",
    "retry": "It is tried again.",
    "hold": "It was held; no attempt is burned.",
    "dead": "It was given up, and became a dead letter.",
    "crashed": "The worker was lost while it ran; no attempt is burned.",
    "cancelled": "It was cancelled.",
}
_REASONS: Final = {
    "retryable": "the failure can heal, and attempts are left",
    "told_delay": "the failure can heal, and the dependency said when to come back",
    "asked": "the stage itself asked for it",
    "breaker": "the dependency is down, which is not the job's fault",
    "permanent": "it does not count as retryable here",
    "given_up": "the policy's give_up_on speaks of this failure",
    "exhausted": "every attempt is spent",
    "code_exhausted": "the limit that this code has of its own is spent",
    "snoozes_exhausted": "it may not be put off any more",
    "deadline": "the next attempt would have come after the deadline",
}
_RULED: Final = {
    "retryable": "; attempts are left",
    "told_delay": "; the dependency said when to come back",
    "permanent": "",
}
"""What there is to add to a ruling of the policy."""
_OTHERWISE: Final = {
    "breaker": "Had the breaker been closed, this would have burned an attempt, and the retry policy would have decided.",
    "told_delay": "Had the dependency not said when to come back, the policy's own backoff would have set the delay.",
    "code_exhausted": "Without the limit {code} has of its own, the job would have had {more}.",
    "deadline": "Without the deadline, the job would have been tried again.",
    "retryable": "Had {code} been permanent, the job would have become a dead letter at once.",
}


def decided(attempt: Attempt) -> str:
    """Say what became of an attempt and why, with what the policy said."""
    because, sentence = _because(attempt), attempt["sentence"]
    words = [_BECAME[str(attempt["outcome"])]]
    if because is not None:
        words.append(f"Why: {because}.")
    if sentence is not None:
        words.append(f"The policy said: {as_sentence(str(sentence))}")
    return " ".join(words)


def otherwise(attempt: Attempt, attempts: Sequence[Attempt], stages: Sequence[str]) -> str | None:
    """Say what would have happened if one thing had been different; None when nothing on record says so."""
    code, reason = attempt["code"], attempt["reason"]
    left = _left(attempt, attempts)
    ruling = _RULING.search(str(attempt["sentence"]))
    if ruling is not None and reason in {"retryable", "permanent"}:
        then = _by_classifier(attempt, left, is_retryable=ruling["kind"] == "retryable")
        return f"Had the policy left it to the classifier, {then}."
    if reason == "permanent":
        return f"Had {code} been retryable, {_tried_again(left)}."
    if reason == "given_up":
        return f"Had give_up_on not spoken of it, {_not_given_up(str(attempt['sentence']), left)}."
    if reason == "exhausted":
        return _after(attempt, stages)
    is_unknown = (reason == "code_exhausted" and not left) or (
        reason == "breaker" and attempt["outcome"] != "hold"
    )
    words = None if is_unknown else _OTHERWISE.get(str(reason))
    return None if words is None else words.format(code=code, more=_more(left or 0))


def as_sentence(text: str) -> str:
    """Return a text as one sentence: its first line, with an end."""
    line = text.strip().partition("\n")[0]
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _because(attempt: Attempt) -> str | None:
    reason, code = attempt["reason"], str(attempt["code"])
    if reason is None:
        return None
    ruling = _RULING.search(str(attempt["sentence"]))
    if ruling is not None and reason in _RULED:
        return f"{ruling['said']}, {ruling['link']} {code} counts as {ruling['kind']}{_RULED[str(reason)]}"
    # Codes of an application's own, and those that only an idempotent stage retries, may well heal.
    if reason == "permanent" and can_heal(code) is False:
        return "trying again cannot heal it"
    return _REASONS.get(str(reason), str(reason))


def _by_classifier(attempt: Attempt, left: int | None, *, is_retryable: bool) -> str:
    """Say what the classifier alone would have led to."""
    if attempt["reason"] == "permanent":
        lasting = f"nothing would have changed: {attempt['code']} counts as permanent"
        return _tried_again(left) if is_retryable else lasting
    if is_retryable:
        return "it would have been tried again all the same"
    return "the job would have become a dead letter at once"


def _not_given_up(sentence: str, left: int | None) -> str:
    if sentence.endswith(NOT_RETRIED_ELSE):
        return "nothing would have changed: the policy does not retry it"
    return (
        _tried_again(left)
        if sentence.endswith(RETRIED_ELSE)
        else "the policy's other rules would have applied"
    )


def _tried_again(left: int | None) -> str:
    if left == 0:
        return "nothing would have changed: it was the last attempt"
    known = "" if left is None else f"; {_more(left)} {'was' if left == 1 else 'were'} left"
    return f"the job would have been tried again within its limits{known}"


def _more(left: int) -> str:
    """Say how many attempts were left; a limit of a code or a deadline may have cut them short."""
    return "one more attempt" if left == 1 else f"up to {left} more attempts"


def _left(attempt: Attempt, attempts: Sequence[Attempt]) -> int | None:
    """Return how many attempts were left, if a decision about the same stage, round and settings told their number."""
    here = ("stage", "round", "config")
    for other in attempts:
        found = _OF.match(str(other["sentence"]))
        if found is not None and all(other[part] == attempt[part] for part in here):
            return max(int(found["most"]) - cast("int", attempt["attempt"]), 0)
    return None


def _after(attempt: Attempt, stages: Sequence[str]) -> str:
    following = stages[stages.index(str(attempt["stage"])) + 1 :]
    then = f"gone on to stage {following[0]!r}" if following else "been complete"
    return f"Had one of its attempts succeeded, the job would have {then}."
