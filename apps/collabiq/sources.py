# SPDX-License-Identifier: Apache-2.0
"""Read mail from a local mailbox, an IMAP server, or the Gmail API.

A source lists ids and fetches the bytes of one mail; it only reads and has no state: the engine knows what was read before. No
client retries by itself.
"""

from __future__ import annotations

import base64
import hashlib
import imaplib
import mailbox
import re
import ssl
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, cast

from apps.collabiq.codes import MAIL_GONE
from apps.collabiq.mail import RAW_MAX
from apps.collabiq.retry_config import GMAIL_RETRY_CONFIG
from apps.collabiq.settings import PREFIX, Settings
from redrive import ConfigurationError, Fail

TIMEOUT: Final = GMAIL_RETRY_CONFIG.timeout
FIRST_BYTES: Final = 100
_IMAP_ID: Final = re.compile(r"(?P<validity>[0-9]{1,10})-(?P<uid>[1-9][0-9]{0,9})")


class Source(Protocol):
    """A source of mail."""

    def ids(self) -> Iterator[str]:
        """Return the id of every mail."""
        ...

    def fetch(self, email_id: str) -> bytes:
        """Return the raw bytes of a mail; raises Fail(MAIL_GONE) when it no longer exists."""
        ...

    def close(self) -> None:
        """Close the connection, if there is one."""
        ...


class LocalSource:
    """An mbox file or a Maildir. A mail's id is its hash, so that two copies count as one."""

    def __init__(self, path: str) -> None:
        check_mailbox(path)
        self._box: mailbox.Mailbox[mailbox.mboxMessage] | mailbox.Mailbox[mailbox.MaildirMessage] = (
            mailbox.Maildir(path, create=False) if Path(path).is_dir() else mailbox.mbox(path, create=False)
        )
        self._lock = threading.Lock()
        self._keys = self._indexed()

    def ids(self) -> Iterator[str]:
        """Return the id of every mail in the mailbox."""
        return iter(self._keys)

    def fetch(self, email_id: str) -> bytes:
        """Return the raw bytes of a mail."""
        try:
            with self._lock:  # A mailbox object has one file and one position in it.
                raw = self._box.get_bytes(self._keys[email_id])
        except (KeyError, FileNotFoundError):
            raw = b""
        if _id_of(raw) != email_id:
            # Another program may have moved the mail.
            raise Fail(MAIL_GONE, "the mail is no longer in the mailbox")
        return raw

    def close(self) -> None:
        """Close the mailbox."""
        self._box.close()

    def _indexed(self) -> dict[str, str]:
        """Return the keys of the mails by their ids."""
        found: dict[str, str] = {}
        for key in self._box.iterkeys():
            try:
                raw = self._box.get_bytes(key)
            except (OSError, KeyError):
                # It is listed anyway, and fails when it is fetched.
                raw = str(key).encode()
            found.setdefault(_id_of(raw), key)
        return found


def check_mailbox(path: str) -> None:
    """Refuse a path that is neither an mbox file nor the folder of a Maildir: it would look like one without mail.

    Raises:
        ConfigurationError: it is none.
    """
    place = Path(path)
    fix = "Check the path."
    try:
        if place.is_dir():
            problem = (
                ""
                if all((place / name).is_dir() for name in ("cur", "new"))
                else "is a folder, but not a Maildir"
            )
            fix = "A Maildir has the folders cur, new and tmp."
        else:
            with place.open("rb") as file:
                start = file.read(FIRST_BYTES).lstrip(b"\r\n")
            problem = "" if not start or start.startswith(b"From ") else "is not an mbox file"
            fix = 'Each mail in an mbox file starts with a line "From ...". A single mail can be put into a Maildir.'
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    if problem:
        raise ConfigurationError(field=f"{PREFIX}MAILBOX", value=path, rule=problem, fix=fix)


def _id_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:16]


class ImapSource:
    """A folder of an IMAP server, opened read-only. A mail's id is UIDVALIDITY and UID, which are unique by RFC 9051."""

    def __init__(self, settings: Settings, password: str) -> None:
        self._settings = settings
        self._password = password
        self._user = _quoted("IMAP_USER", settings.imap_user)
        self._folder = _quoted("IMAP_FOLDER", settings.imap_folder)

    def ids(self) -> Iterator[str]:
        """Return the id of every mail in the folder."""
        with self._opened() as (server, validity):
            uids = _answer(server.uid("SEARCH", "ALL"))[0] or b""
            return iter([f"{validity}-{uid.decode()}" for uid in cast("bytes", uids).split()])

    def fetch(self, email_id: str) -> bytes:
        """Return a mail, without marking it as read."""
        # The id comes from a payload: nothing else may reach a line of the protocol.
        if (found := _IMAP_ID.fullmatch(email_id)) is None:
            raise Fail(MAIL_GONE, "the id is not the id of a mail on an IMAP server")
        with self._opened() as (server, validity):
            is_same = validity == found["validity"]
            # One byte more than a mail may have: a larger one is refused, and never read to its end.
            part = f"(BODY.PEEK[]<0.{RAW_MAX + 1}>)"
            parts = _answer(server.uid("FETCH", found["uid"], part)) if is_same else []
        for each in parts:
            if isinstance(each, tuple):
                return cast("bytes", each[1])
        raise Fail(MAIL_GONE, "the mail is no longer in the folder")

    def close(self) -> None:
        """Do nothing: connections last for one call."""

    @contextmanager
    def _opened(self) -> Generator[tuple[imaplib.IMAP4, str]]:
        """Log in and open the folder for one call, so that no state outlives a broken connection."""
        host, port = self._settings.imap_host, self._settings.imap_port
        server = (
            imaplib.IMAP4_SSL(host, port, timeout=TIMEOUT, ssl_context=ssl.create_default_context())
            if self._settings.imap_tls
            else imaplib.IMAP4(host, port, timeout=TIMEOUT)
        )
        try:
            server.login(self._user, self._password)
            _answer(server.select(self._folder, readonly=True))
            validity = server.response("UIDVALIDITY")[1][0]
            yield server, (validity or b"0").decode()
        finally:
            with suppress(OSError, imaplib.IMAP4.error):
                server.logout()
            with suppress(OSError):
                server.shutdown()  # If the logout got no answer, the socket is still open.


def _quoted(name: str, text: str) -> str:
    """Return a setting as a quoted string of the protocol, which cannot have line breaks."""
    if not text.isprintable():
        raise ConfigurationError(
            field=PREFIX + name,
            value=text,
            rule="must not have line breaks or other control characters",
            fix="Check it for a stray line break.",
        )
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _answer(response: tuple[str, Sequence[object]]) -> Sequence[object]:
    """Return the server's response, or raise an error if it refused."""
    word, parts = response
    if word != "OK":
        refused = f"{word} {parts[:1]!r}"
        raise imaplib.IMAP4.error(refused)
    return parts


class GmailSource:
    """The Gmail API, with an access token that may read mail (scope gmail.readonly)."""

    def __init__(self, settings: Settings, token: str) -> None:
        from googleapiclient.discovery import build  # type: ignore[import-untyped]

        self._http = _SingleTryHttp(token)
        service = build(
            "gmail",
            "v1",
            http=self._http,
            client_options={"api_endpoint": settings.gmail_url},
            static_discovery=True,
            cache_discovery=False,
            num_retries=0,
        )
        self._messages = service.users().messages()
        self._query = settings.gmail_query

    def ids(self) -> Iterator[str]:
        """Return the id of every mail that matches the query, page by page."""
        request = self._messages.list(userId="me", q=self._query, maxResults=500)
        while request is not None:
            answer = request.execute(num_retries=0)
            for message in answer.get("messages", []):
                yield str(message["id"])
            request = self._messages.list_next(request, answer)

    def fetch(self, email_id: str) -> bytes:
        """Return the raw bytes of a mail."""
        answer = self._messages.get(userId="me", id=email_id, format="raw").execute(num_retries=0)
        raw = str(answer["raw"])
        return base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4))

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


class _SingleTryHttp:
    """The `http` object of googleapiclient, which sends each request once.

    The default, httplib2, repeats a request when the connection closes without an answer, and cannot be configured not to; the
    breaker and the budget would not see that.
    """

    def __init__(self, token: str) -> None:
        import httpx

        self._client = httpx.Client(
            timeout=TIMEOUT, headers={"Authorization": f"Bearer {token}"}, follow_redirects=False
        )

    def request(
        self,
        uri: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: dict[str, str] | None = None,
        **_: object,
    ) -> tuple[object, bytes]:
        """Send a request, and return the response in httplib2's form."""
        import httplib2  # type: ignore[import-untyped]

        sent = {name: value for name, value in (headers or {}).items() if name.lower() != "accept-encoding"}
        answer = self._client.request(method, uri, content=body, headers=sent)
        response = httplib2.Response({**answer.headers, "status": str(answer.status_code)})
        response.reason = answer.reason_phrase
        return response, answer.content

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
