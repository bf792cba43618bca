# SPDX-License-Identifier: Apache-2.0
"""Google Cloud Storage (its XML API) and Azure Blob Storage over a socket: as much of both protocols as an upload needs.

Objects with their metadata, uploads in parts that are visible once they are complete, signed requests where Azure demands them,
errors in each one's own form, and faults that a test asks for. No emulator of Google's that can be installed from a package index
answers HEAD on the XML API; Azurite does what this one does, but needs Node.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

from apps.fetchbox.tests.servers import Quiet, Server

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key of every emulator of Azure."""
BUCKET = "fetch"


@dataclass
class Stored:
    """An object, or the parts of one that is not complete."""

    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    parts: dict[str, bytes] = field(default_factory=dict[str, bytes])


class _Handler(Quiet):
    """What both have in common: objects by name, faults first."""

    meta: ClassVar[str]

    def do(self) -> None:
        cloud: Cloud = self.owner
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        bucket, _, name = unquote(parts.path).removeprefix(cloud.root).strip("/").partition("/")
        asked = dict(parse_qsl(parts.query, keep_blank_values=True))
        kind = next((each for each in ("comp", "uploads", "partNumber", "uploadId") if each in asked), "")
        cloud.requests[f"{self.command} {name} {asked.get('comp', kind)}".strip()] += 1
        status, code = self.fault(name)
        if status:
            cloud.early |= name in cloud.objects
            self.refuse(abs(status), code)
        elif not self.is_signed():
            self.refuse(403, "AuthenticationFailed")
        elif bucket != BUCKET:
            self.refuse(404, self.owner.no_bucket)
        elif self.command in {"GET", "HEAD"}:
            self.read(cloud.objects.get(name))
        else:
            self.write(name, asked, body)

    def fault(self, name: str) -> tuple[int, str]:
        """Return the status and the code to answer instead; 0 for none."""
        faults = self.owner.faults.get(name)
        if not faults or self.command not in {"PUT", "POST"}:
            return 0, ""
        found: tuple[int, str] = faults[0] if faults[0][0] < 0 else faults.pop(0)
        return found

    def is_signed(self) -> bool:
        return True

    def write(self, name: str, asked: dict[str, str], body: bytes) -> None:
        raise NotImplementedError

    def read(self, found: Stored | None) -> None:
        if found is None:
            self.refuse(404, "NotFound")
            return
        etag = f'"{hashlib.sha256(found.content).hexdigest()[:16]}"'
        date = "Thu, 01 Jan 2026 00:00:00 GMT"
        self.answer(200, found.content, **{**found.headers, "ETag": etag, "Last-Modified": date})

    def refuse(self, status: int, code: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>"
        self.answer(status, text.encode(), Content_Type="application/xml", x_ms_error_code=code)

    def kept(self) -> dict[str, str]:
        """Return the headers of a request that belong to the object."""
        names = {"content-type", "x-ms-blob-content-type"}
        found = {name.lower(): value for name, value in self.headers.items()}
        return {
            name.replace("x-ms-blob-", ""): value
            for name, value in found.items()
            if name in names or name.startswith(self.meta)
        }


for _method in ("GET", "HEAD", "PUT", "POST"):
    setattr(_Handler, f"do_{_method}", _Handler.do)


class _Google(_Handler):
    meta = "x-goog-meta-"

    def write(self, name: str, asked: dict[str, str], body: bytes) -> None:
        cloud: Cloud = self.owner
        if "uploads" in asked:
            upload = f"upload-{len(cloud.open)}"
            cloud.open[upload] = Stored(headers=self.kept())
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            self.answer(200, text.encode())
        elif "partNumber" in asked:
            cloud.open[asked["uploadId"]].parts[asked["partNumber"]] = body
            self.answer(200, ETag=f'"part-{asked["partNumber"]}"')
        elif "uploadId" in asked:
            made = cloud.open.pop(asked["uploadId"])
            numbers = re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)
            made.content = b"".join(made.parts[number.decode()] for number in numbers)
            cloud.objects[name] = made
            text = "<CompleteMultipartUploadResult><ETag>&quot;whole&quot;</ETag></CompleteMultipartUploadResult>"
            self.answer(200, text.encode())
        else:
            cloud.objects[name] = Stored(body, self.kept())
            self.answer(200, ETag='"whole"')


class _Azure(_Handler):
    meta = "x-ms-meta-"

    def write(self, name: str, asked: dict[str, str], body: bytes) -> None:
        cloud: Cloud = self.owner
        if asked.get("comp") == "block":
            cloud.open.setdefault(name, Stored()).parts[asked["blockid"]] = body
        elif asked.get("comp") == "blocklist":
            made = cloud.open.pop(name)
            blocks = re.findall(rb"<(?:Latest|Uncommitted)>([^<]+)<", body)
            content = b"".join(made.parts[block.decode()] for block in blocks)
            cloud.objects[name] = Stored(content, self.kept())
        elif self.headers.get("x-ms-blob-type") == "BlockBlob":
            cloud.objects[name] = Stored(body, self.kept())
        else:
            self.refuse(400, "InvalidHeaderValue")
            return
        self.answer(201, ETag='"whole"')

    def is_signed(self) -> bool:
        """Check the signature as the service does: over the method, some headers, and the resource with its query."""
        found = {name.lower(): value for name, value in self.headers.items()}
        own = "".join(
            f"{name}:{value}\n" for name, value in sorted(found.items()) if name.startswith("x-ms-")
        )
        length = found.get("content-length", "")
        standard = [
            "" if name == "content-length" and length == "0" else found.get(name, "") for name in _STANDARD
        ]
        parts = urlsplit(self.path)
        query = sorted(
            (name.lower(), value) for name, value in parse_qsl(parts.query, keep_blank_values=True)
        )
        resource = f"/{ACCOUNT}{parts.path}" + "".join(f"\n{name}:{value}" for name, value in query)
        text = "\n".join([self.command, *standard]) + "\n" + own + resource
        made = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        return found.get("authorization") == f"SharedKey {ACCOUNT}:{base64.b64encode(made).decode()}"


_STANDARD = (
    "content-encoding content-language content-length content-md5 content-type date if-modified-since if-match "
    "if-none-match if-unmodified-since range"
).split()


class Cloud(Server):
    """An object store with the bucket `fetch`; `faults` are answered to writes of a name: 0 is none, a negative status for ever."""

    def __init__(self, handler: type[_Handler], root: str, no_bucket: str) -> None:
        super().__init__(handler)
        self.root = root
        self.no_bucket = no_bucket
        self.objects: dict[str, Stored] = {}
        self.open: dict[str, Stored] = {}
        self.faults: dict[str, list[tuple[int, str]]] = {}
        self.early = False
        """Whether an object was visible when one of its writes failed."""


def google() -> Cloud:
    return Cloud(_Google, "/", "NoSuchBucket")


def azure() -> Cloud:
    return Cloud(_Azure, f"/{ACCOUNT}/", "ContainerNotFound")


def environment(gcs: Cloud, az: Cloud) -> dict[str, str]:
    """Return the variables by which the library finds both."""
    account = {
        "gcs_base_url": gcs.url,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    return {
        "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account),
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": az.url,
    }
