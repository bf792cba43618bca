# SPDX-License-Identifier: Apache-2.0
"""The providers, as their public documentation has them; the page is named beside each body."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Final, cast

from apps.collabiq.tests.wire import Asked, Fault, Service

_WORDS: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Gmail(Service):
    """developers.google.com/workspace/gmail/api/reference/rest/v1/users.messages (list, get)."""

    def __init__(self) -> None:
        super().__init__()
        self.mails: dict[str, bytes] = {}
        self.page = 2

    def answer(self, asked: Asked) -> object:
        *_, last = asked.path.split("/")
        if last == "messages":
            start = int(asked.query.get("pageToken", ["0"])[0])
            ids = list(self.mails)[start : start + self.page]
            answer: dict[str, object] = {
                "messages": [{"id": each, "threadId": each} for each in ids],
                "resultSizeEstimate": len(self.mails),
            }
            more = {"nextPageToken": str(start + self.page)} if start + self.page < len(self.mails) else {}
            return answer | more
        if last not in self.mails:
            return self.refusal(404)
        raw = self.mails[last]
        return {
            "id": last,
            "threadId": last,
            "labelIds": ["INBOX"],
            "snippet": "",
            "historyId": "1",
            "internalDate": "1762424122000",
            "sizeEstimate": len(raw),
            "raw": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        }

    def refusal(self, status: int) -> Fault:
        # developers.google.com/workspace/gmail/api/guides/handle-errors
        reason = {401: "authError", 403: "insufficientPermissions", 404: "notFound", 429: "rateLimitExceeded"}
        word = reason.get(status, "backendError")
        errors = [{"domain": "global", "reason": word, "message": "as documented"}]
        error = {"code": status, "message": "as documented", "errors": errors, "status": _WORDS[status]}
        return Fault(status, {"error": error})


class Gemini(Service):
    """ai.google.dev/api/generate-content (models.generateContent)."""

    FOUND: Final[dict[str, object]] = {
        "people": ["Minji Kim"],
        "companies": ["Northwind Labs"],
        "dates": ["2026-03-03"],
        "kind": "pilot",
    }

    def __init__(self) -> None:
        super().__init__()
        self.text: str | None = json.dumps(self.FOUND)

    def answer(self, asked: Asked) -> object:
        if self.text is None:  # ai.google.dev/gemini-api/docs/safety-settings, "Safety feedback per request"
            return {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}}
        content = {"role": "model", "parts": [{"text": self.text}]}
        return {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18},
            "modelVersion": "gemini-2.5-flash",
        }

    def refusal(self, status: int) -> Fault:
        # ai.google.dev/gemini-api/docs/troubleshooting; details as google.rpc.RetryInfo
        details = (
            [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]
            if status == 429
            else []
        )
        error = {"code": status, "message": "as documented", "status": _WORDS[status], "details": details}
        return Fault(status, {"error": error})


class Notion(Service):
    """developers.notion.com/reference: Query a data source, Create a page, Update page (version 2025-09-03)."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, dict[str, object]] = {}

    def answer(self, asked: Asked) -> object:
        if asked.path.endswith("/query"):
            wanted = cast("dict[str, dict[str, str]]", asked.body["filter"])["rich_text"]["equals"]
            found = [page for page in self.pages.values() if _email_id_of(page) == wanted]
            return {
                "object": "list",
                "results": found,
                "next_cursor": None,
                "has_more": False,
                "type": "page_or_data_source",
            }
        if asked.method == "POST":
            page_id = str(uuid.uuid4())
            self.pages[page_id] = {"object": "page", "id": page_id, "properties": asked.body["properties"]}
            return self.pages[page_id]
        page = self.pages[asked.path.rsplit("/", 1)[1]]
        page["properties"] = asked.body["properties"]
        return page

    def title_of(self, page: str) -> str:
        """Return the title of a page."""
        properties = cast(
            "dict[str, dict[str, list[dict[str, dict[str, str]]]]]", self.pages[page]["properties"]
        )
        return properties["Name"]["title"][0]["text"]["content"]

    def refusal(self, status: int) -> Fault:
        # developers.notion.com/reference/status-codes
        words = {
            400: "validation_error",
            401: "unauthorized",
            404: "object_not_found",
            409: "conflict_error",
            429: "rate_limited",
        }
        word = words.get(status, "internal_server_error" if status == 500 else "service_unavailable")
        headers = {"Retry-After": "23"} if status == 429 else {}
        body = {
            "object": "error",
            "status": status,
            "code": word,
            "message": "as documented",
            "request_id": "r-1",
        }
        return Fault(status, body, headers)


class Infisical(Service):
    """infisical.com/docs/api-reference/endpoints: Universal Auth "Login", Secrets "List" (v3, raw)."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[str, str] = {}

    def answer(self, asked: Asked) -> object:
        if asked.path.endswith("/login"):
            return {
                "accessToken": "made-up-token",
                "expiresIn": 7200,
                "accessTokenMaxTTL": 43244,
                "tokenType": "Bearer",
            }
        if asked.headers["Authorization"] != "Bearer made-up-token":
            return self.refusal(401)
        listed = [
            {
                "id": name,
                "workspace": "p",
                "environment": "prod",
                "version": 1,
                "type": "shared",
                "secretKey": name,
                "secretValue": value,
            }
            for name, value in self.secrets.items()
        ]
        return {"secrets": listed, "imports": []}

    def refusal(self, status: int) -> Fault:
        # infisical.com/docs/api-reference/overview/introduction: errors carry these members
        return Fault(
            status, {"reqId": "req-1", "statusCode": status, "message": "as documented", "error": "Error"}
        )


def _email_id_of(page: dict[str, object]) -> str:
    properties = cast("dict[str, dict[str, list[dict[str, dict[str, str]]]]]", page["properties"])
    return properties["Email ID"]["rich_text"][0]["text"]["content"]
