# SPDX-License-Identifier: Apache-2.0
"""The standard library: sockets, TLS, files, child processes, queues, executors and the formats it parses.

The classes of sqlite3, http.client, urllib, ftplib, imaplib, poplib and smtplib have files of their own, and so have the numbers
and texts of OSError (`oserrors`). Exception and ValueError have no entry on purpose: they are used as wrappers, and what they wrap
speaks for them. So are RuntimeError and a plain OSError, of which only what the standard library itself raises is read.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.http import classify_response
from redrive.core.verdict import RuleFunction, RuleTable, Verdict
from redrive.rules.shared.oserrors import code_by_text, code_of
from redrive.rules.shared.reading import attribute, home_of, status_in, text_of

_PEER_DISLIKES_US: Final = (
    "ALERT_CERTIFICATE",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_ACCESS_DENIED",
)
_STOPPED_BY: Final = frozenset({signal.SIGTERM, signal.SIGINT, 1})
"""Signals by which people and service managers end a process; 1 is SIGHUP, which Windows has no name for."""

_ERRORS: Final[dict[str, Code]] = {
    "_csv": taxonomy.SCHEMA_INVALID,
    "binascii": taxonomy.SCHEMA_INVALID,
    "configparser": taxonomy.CONFIG_INVALID,
    "copy": taxonomy.BUG_CODE,
    "re": taxonomy.BUG_CODE,
    "struct": taxonomy.SCHEMA_INVALID,
    "wave": taxonomy.SCHEMA_INVALID,
    "zlib": taxonomy.SCHEMA_INVALID,
}
"""Where a class that is only called "Error" or "error" lives -> what it means."""


def _by_module(exc: BaseException, _now: float) -> Code | None:
    homes = (cls.__module__ for cls in type(exc).__mro__ if cls.__name__ in {"Error", "error"})
    return next((_ERRORS[home] for home in homes if home in _ERRORS), None)


def _os_error(exc: BaseException, now: float) -> Code | None:
    """Read the error number. Without one, a plain OSError or a foreign subclass is some library's business, not a disk's.

    Libraries raise it for what they cannot read ("image file is truncated"), which no repetition heals.
    """
    known = code_of(exc)
    if known is None and type(exc) is OSError:
        return code_by_text(exc, now)
    is_ours = home_of(type(exc)) in sys.stdlib_module_names
    return known or (taxonomy.IO_ERROR if is_ours else None)


def _numbered_or(fallback: Code) -> RuleFunction:
    """Build a rule for a class of OSError: its number where it has one, since EPERM and a Windows lock share a class."""
    return lambda exc, _now: code_of(exc) or fallback


def _file(fallback: Code) -> RuleFunction:
    def read(exc: BaseException, now: float) -> Verdict | Code | None:
        if _raised_in(exc, "subprocess"):
            # The program to run is missing or may not be run: no payload is to blame, the installation is.
            return taxonomy.CONFIG_INVALID
        if attribute(exc, "errno") is None:
            from redrive.rules.obstore import missing_object

            return missing_object(exc, now) or fallback
        return code_of(exc) or fallback

    return read


def _raised_in(exc: BaseException, module: str) -> bool:
    """Say whether the innermost frame is the module's: the exception of a missing program has no other mark."""
    last = exc.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_globals.get("__name__") == module


def _timeout(exc: BaseException, _now: float) -> Code:
    """Tell the network's timeouts from our own limits.

    asyncio's and a future's TimeoutError say nothing. A socket's has a number, or it says "timed out" as sockets do. Any other text
    of the plain class is somebody's own, about a lock mostly: no evidence against a dependency. multiprocessing has a class of its
    own, for what one of its processes did not do in time.
    """
    if not isinstance(exc, TimeoutError):
        return taxonomy.LOCAL_TIMEOUT
    if not exc.args:
        return taxonomy.TIMEOUT
    text = text_of(exc)
    is_socket = exc.errno is not None or text.startswith("timed out") or text.endswith("timed out")
    is_own = type(exc) is TimeoutError and not is_socket
    return taxonomy.LOCAL_TIMEOUT if is_own else taxonomy.NETWORK_TIMEOUT


def _runtime(exc: BaseException, _now: float) -> Code | None:
    """CPython's own complaint about the limit on threads, word for word; every other RuntimeError is somebody else's."""
    is_limit = type(exc) is RuntimeError and exc.args == ("can't start new thread",)
    return taxonomy.RESOURCE_EXHAUSTED if is_limit else None


def _resolver(exc: BaseException, _now: float) -> Code:
    """Read a failed name lookup. An unknown name heals too: records appear late, and resolvers answer so while they start."""
    import socket  # loaded already, since the exception is its own; its numbers differ between platforms.

    number = attribute(exc, "errno")
    if number == socket.EAI_MEMORY:
        return taxonomy.OUT_OF_MEMORY
    mistakes = (socket.EAI_BADFLAGS, socket.EAI_SERVICE, socket.EAI_SOCKTYPE)
    return taxonomy.BUG_CODE if number in mistakes else taxonomy.NETWORK_DNS


def _tls(exc: BaseException, _now: float) -> Code:
    reason = attribute(exc, "reason")
    if isinstance(reason, str):
        if reason == "CERTIFICATE_VERIFY_FAILED":
            return taxonomy.TLS_CERTIFICATE
        # These alerts come from the other side and speak of the certificate that we showed, or did not show.
        if any(alert in reason for alert in _PEER_DISLIKES_US):
            return taxonomy.AUTH_INVALID
    return taxonomy.NETWORK_TLS


def _stream_ended(exc: BaseException, _now: float) -> Code:
    """A pipe or FTP connection that closes raises a bare EOFError; gzip and pickle say that their content is cut short."""
    return taxonomy.SCHEMA_INVALID if exc.args else taxonomy.NETWORK_RESET


def _child_failed(exc: BaseException, _now: float) -> Code:
    """Read how a child process ended.

    Only what shells and kernels define is read, and EX_TEMPFAIL, by which mailers and others ask to be run again. What any other
    status means is known to the program alone (sysexits, curl and grep disagree), and the same input mostly fails the same way
    again: so it is an unknown failure, not retried, for which the user may add a rule.
    """
    status = attribute(exc, "returncode")
    if not isinstance(status, int):
        return taxonomy.BUG_UNKNOWN
    if status == 75:  # EX_TEMPFAIL
        return taxonomy.UPSTREAM_NOT_READY
    if status == 124:  # the `timeout` command's own
        return taxonomy.LOCAL_TIMEOUT
    if status in {126, 127}:  # a shell found no such program, or may not run it
        return taxonomy.CONFIG_INVALID
    killed_by = -status if status < 0 else status - 128
    if 0 < killed_by < 65:
        return taxonomy.CANCELLED if killed_by in _STOPPED_BY else taxonomy.WORKER_CRASH
    return taxonomy.BUG_UNKNOWN


def _xml_rpc(exc: BaseException, now: float) -> Verdict | Code:
    status = status_in(exc, "errcode")
    if status is None:
        return taxonomy.NETWORK_PROTOCOL
    return classify_response(status, now, headers=attribute(exc, "headers"))


RULES: Final[RuleTable] = {
    # Sockets, names and TLS.
    "TimeoutError": _timeout,
    "ConnectionRefusedError": taxonomy.NETWORK_REFUSED,
    "ConnectionResetError": taxonomy.NETWORK_RESET,
    "ConnectionAbortedError": taxonomy.NETWORK_RESET,
    "BrokenPipeError": taxonomy.NETWORK_RESET,
    "ConnectionError": _numbered_or(taxonomy.NETWORK_ERROR),
    "gaierror": _resolver,
    "herror": taxonomy.NETWORK_DNS,
    "SSLCertVerificationError": taxonomy.TLS_CERTIFICATE,
    "SSLEOFError": taxonomy.NETWORK_RESET,
    "SSLZeroReturnError": taxonomy.NETWORK_RESET,
    "SSLSyscallError": taxonomy.NETWORK_RESET,
    "SSLError": _tls,
    "ProtocolError": _xml_rpc,
    # Files and the machine.
    "FileNotFoundError": _file(taxonomy.IO_NOT_FOUND),
    "PermissionError": _file(taxonomy.IO_DENIED),
    "IsADirectoryError": _numbered_or(taxonomy.IO_NOT_FOUND),
    "NotADirectoryError": _numbered_or(taxonomy.IO_NOT_FOUND),
    "FileExistsError": _numbered_or(taxonomy.CONFLICT),
    "BlockingIOError": _numbered_or(taxonomy.RESOURCE_EXHAUSTED),
    "ProcessLookupError": _numbered_or(taxonomy.NOT_FOUND),
    "ChildProcessError": _numbered_or(taxonomy.BUG_CODE),
    "UnsupportedOperation": taxonomy.BUG_CODE,
    "SameFileError": taxonomy.BUG_CODE,
    "OSError": _os_error,
    "MemoryError": taxonomy.OUT_OF_MEMORY,
    "EOFError": _stream_ended,
    # Child processes, executors, threads, tasks and queues.
    "TimeoutExpired": taxonomy.LOCAL_TIMEOUT,
    "CalledProcessError": _child_failed,
    "BrokenExecutor": taxonomy.WORKER_CRASH,
    "RuntimeError": _runtime,
    "CancelledError": taxonomy.CANCELLED,
    "InvalidStateError": taxonomy.BUG_CODE,
    "IncompleteReadError": taxonomy.NETWORK_PROTOCOL,
    "LimitOverrunError": taxonomy.SCHEMA_INVALID,
    "BrokenBarrierError": taxonomy.LOCAL_TIMEOUT,  # one party timed out or gave up, so all others get this
    "Full": taxonomy.QUEUE_FULL,
    "QueueFull": taxonomy.QUEUE_FULL,
    "Empty": taxonomy.UPSTREAM_NOT_READY,
    "QueueEmpty": taxonomy.UPSTREAM_NOT_READY,
    "AuthenticationError": taxonomy.AUTH_INVALID,
    "KeyboardInterrupt": taxonomy.CANCELLED,
    "SystemExit": taxonomy.CANCELLED,
    "GeneratorExit": taxonomy.CANCELLED,
    # Formats: what was parsed does not have its form.
    "JSONDecodeError": taxonomy.SCHEMA_INVALID,
    "UnicodeError": taxonomy.SCHEMA_INVALID,
    "Incomplete": taxonomy.SCHEMA_INVALID,
    "LZMAError": taxonomy.SCHEMA_INVALID,
    "BadGzipFile": taxonomy.SCHEMA_INVALID,
    "BadZipFile": taxonomy.SCHEMA_INVALID,
    "LargeZipFile": taxonomy.REQUEST_TOO_LARGE,
    "TarError": taxonomy.SCHEMA_INVALID,
    "ReadError": taxonomy.SCHEMA_INVALID,
    "ParseError": taxonomy.SCHEMA_INVALID,
    "ExpatError": taxonomy.SCHEMA_INVALID,
    "SAXException": taxonomy.SCHEMA_INVALID,
    "TOMLDecodeError": taxonomy.SCHEMA_INVALID,
    "InvalidFileException": taxonomy.SCHEMA_INVALID,
    "MessageError": taxonomy.SCHEMA_INVALID,
    "MessageDefect": taxonomy.SCHEMA_INVALID,
    "AddressValueError": taxonomy.SCHEMA_INVALID,
    "NetmaskValueError": taxonomy.SCHEMA_INVALID,
    "ZoneInfoNotFoundError": taxonomy.SCHEMA_INVALID,
    "UnpicklingError": taxonomy.SCHEMA_INVALID,
    "PicklingError": taxonomy.BUG_CODE,
    # Decimal("abc") is by far the most common InvalidOperation; the other decimal errors are mistakes in arithmetic.
    "InvalidOperation": taxonomy.SCHEMA_INVALID,
    "DecimalException": taxonomy.BUG_CODE,
    "NetrcParseError": taxonomy.CONFIG_INVALID,
    "PackageNotFoundError": taxonomy.CONFIG_INVALID,
    "Error": _by_module,
    "error": _by_module,
}
