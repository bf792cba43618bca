# SPDX-License-Identifier: Apache-2.0
"""What web services on redrive share, and the console too: small parts for FastAPI. Needs the extra `web`.

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    install_problems(app, unexpected=Problem(500, "UNKNOWN", "Something went wrong. We have logged it."))

    body = decode_json(await read_limited(request, 5_000_000, gzip_max=5_000_000), Manifest)
    saved = await save_stream(stream_limited(request, 50_000_000), path)     # size and SHA-256
    session = sessions.open(request)                                         # session.owner; session.attach(response)
    return event_response(request, changes)                                  # server-sent events
    return JsonResponse(snapshot)                                            # encoded by msgspec
    serve(app, port=8000, on_ready=print)

It has no routes and no pages of its own, and nothing of redrive loads it.
"""

from __future__ import annotations

from redrive.web.bodies import SavedBody, decode_json, read_limited, save_stream, stream_limited
from redrive.web.problems import JsonResponse, Problem, ProblemError, install_problems, request_id
from redrive.web.server import serve
from redrive.web.server_events import ServerEvent, event_response
from redrive.web.sessions import Session, Sessions, installation_secret

__all__ = [
    "JsonResponse",
    "Problem",
    "ProblemError",
    "SavedBody",
    "ServerEvent",
    "Session",
    "Sessions",
    "decode_json",
    "event_response",
    "install_problems",
    "installation_secret",
    "read_limited",
    "request_id",
    "save_stream",
    "serve",
    "stream_limited",
]
