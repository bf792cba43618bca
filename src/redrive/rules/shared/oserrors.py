# SPDX-License-Identifier: Apache-2.0
"""Codes for the operating system's error numbers on every platform, and for the few texts that stand for a number.

A number that the platform lacks is left out; an unlisted number is a retryable I/O error. OpenSSL and the resolver have numbers of
their own: `rules.stdlib` handles their classes first.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.rules.shared.inspection import attribute, text_of
from redrive.rules.shared.network import proxy_code

_NAMES: Final[dict[Code, str]] = {
    taxonomy.NETWORK_TIMEOUT: "ETIMEDOUT",
    taxonomy.NETWORK_REFUSED: "ECONNREFUSED",
    taxonomy.NETWORK_RESET: "ECONNRESET ECONNABORTED EPIPE ENOTCONN ESHUTDOWN ENETRESET",
    taxonomy.NETWORK_UNREACHABLE: "EHOSTUNREACH ENETUNREACH ENETDOWN EHOSTDOWN ENONET",
    taxonomy.NETWORK_PROTOCOL: "EPROTO",
    taxonomy.DISK_FULL: "ENOSPC EDQUOT",
    # A busy port and used-up ephemeral ports become free again, like threads and descriptors. EAGAIN comes from a fork that hit
    # the process limit; callers of non-blocking descriptors handle it themselves.
    taxonomy.RESOURCE_EXHAUSTED: "EMFILE ENFILE EAGAIN ENOBUFS EADDRINUSE EADDRNOTAVAIL EUSERS ENOLCK",
    taxonomy.OUT_OF_MEMORY: "ENOMEM",
    # A path through a file or into a loop of links: the path is wrong, or its target is gone.
    taxonomy.IO_NOT_FOUND: "ENOENT ENOTDIR EISDIR ELOOP ENODEV ENXIO",
    taxonomy.IO_DENIED: "EACCES EPERM EROFS",
    taxonomy.IO_ERROR: "EIO ESTALE EBUSY EINTR ETXTBSY EDEADLK EREMOTEIO",
    taxonomy.CONFLICT: "EEXIST ENOTEMPTY",
    taxonomy.NOT_FOUND: "ESRCH",
    taxonomy.REQUEST_TOO_LARGE: "EFBIG E2BIG EMSGSIZE EOVERFLOW",
    # Names come from payloads far more often than from code.
    taxonomy.SCHEMA_INVALID: "ENAMETOOLONG EILSEQ",
    taxonomy.CONFIG_INVALID: "EXDEV ENOEXEC EAFNOSUPPORT EPROTONOSUPPORT",
    taxonomy.BUG_CODE: "EINVAL EBADF EFAULT EDOM ERANGE ENOTTY ENOSYS ENOTSUP EOPNOTSUPP ENOTSOCK EISCONN ECHILD ESPIPE",
}
_WINDOWS: Final[dict[int, Code]] = {
    32: taxonomy.IO_ERROR,  # sharing violation: another process has the file open, which Python calls a PermissionError
    33: taxonomy.IO_ERROR,  # lock violation, likewise
    39: taxonomy.DISK_FULL,
    64: taxonomy.NETWORK_RESET,
    112: taxonomy.DISK_FULL,
    121: taxonomy.NETWORK_TIMEOUT,
    1225: taxonomy.NETWORK_REFUSED,
    1231: taxonomy.NETWORK_UNREACHABLE,
    1232: taxonomy.NETWORK_UNREACHABLE,
    10051: taxonomy.NETWORK_UNREACHABLE,
    10053: taxonomy.NETWORK_RESET,
    10054: taxonomy.NETWORK_RESET,
    10060: taxonomy.NETWORK_TIMEOUT,
    10061: taxonomy.NETWORK_REFUSED,
    10065: taxonomy.NETWORK_UNREACHABLE,
}


_NUMBERS: Final[dict[int, Code]] = {
    getattr(errno, name): code
    for code, names in _NAMES.items()
    for name in names.split()
    if hasattr(errno, name)
}


def code_for_errno(number: object) -> Code | None:
    """Return the code for an `errno`; None when it is not a number."""
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return _NUMBERS.get(number, taxonomy.IO_ERROR)


def code_of(exc: BaseException) -> Code | None:
    """Return the code for the numbers of an OSError, the Windows number first; None when it has none."""
    on_windows = attribute(exc, "winerror")
    known = _WINDOWS.get(on_windows) if isinstance(on_windows, int) else None
    return known or code_for_errno(attribute(exc, "errno"))


_TEXTS: Final[dict[str, Code]] = {
    "Invalid data stream": taxonomy.SCHEMA_INVALID,  # bz2
    "cannot read from timed out object": taxonomy.NETWORK_TIMEOUT,
    "getaddrinfo returns an empty list": taxonomy.NETWORK_DNS,
    "getaddrinfo() returned empty list": taxonomy.NETWORK_DNS,
}
_NUMBER_IN_TEXT: Final = re.compile(r"\[Errno (\d{1,5})\]")


def code_by_text(exc: BaseException, now: float) -> Code | None:
    """Return the code for a plain OSError without a number if the standard library raises it; else None.

    asyncio joins the texts of several failed connections into one ("Multiple exceptions: [Errno 111] ..., ..."), and http.client
    has only a text for a proxy that refuses a tunnel.
    """
    text = text_of(exc)
    if text.startswith("Tunnel connection failed: "):
        return proxy_code(exc, now)
    if text.startswith("Multiple exceptions: "):
        first = _NUMBER_IN_TEXT.search(text)
        return taxonomy.NETWORK_ERROR if first is None else code_for_errno(int(first[1]))
    return _TEXTS.get(text)
