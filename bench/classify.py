# SPDX-License-Identifier: Apache-2.0
"""What it costs to classify an exception whose type has been seen before."""

from __future__ import annotations

from bench.measure import Figure, compare
from redrive import classify, fingerprint
from redrive.core.fingerprint import frames_of


def run() -> list[Figure]:
    """Time classification of a plain, a wrapped and an HTTP failure, and a fingerprint."""
    refused = ConnectionRefusedError(111, "refused")
    bug = KeyError("x")
    wrapper = RuntimeError("wrapped")
    wrapper.__cause__ = refused
    answer = _http_error()
    raised = _raised()
    failure = classify(raised)
    return compare(
        "seen types",
        {
            "classify a bug": lambda: classify(bug),
            "classify a refused connection": lambda: classify(refused),
            "classify a wrapped failure": lambda: classify(wrapper),
            "classify an HTTP 429 with a provider's body": lambda: classify(answer),
            "frames_of + fingerprint": lambda: fingerprint(failure, "stage", frames_of(raised)),
        },
    )


def _http_error() -> Exception:
    import httpx

    body = {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}
    response = httpx.Response(
        429, json=body, headers={"retry-after": "2"}, request=httpx.Request("POST", "http://127.0.0.1/")
    )
    return httpx.HTTPStatusError("429", request=response.request, response=response)


def _raised() -> Exception:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("order 17 of ann@example.org is broken")
        deep(n - 1)

    try:
        deep(8)
    except ValueError as exc:
        return exc
    raise AssertionError
