# SPDX-License-Identifier: Apache-2.0
"""The standard library: sockets, TLS, files, child processes, queues, executors and the formats it parses.

sqlite3, http.client, urllib, ftplib, imaplib, poplib and smtplib have files of their own, and so have the numbers and texts of
OSError (`oserrors`). Exception and ValueError have no entry on purpose: they serve as wrappers, and their cause decides. So do
RuntimeError and a plain OSError, whose rules match only what the standard library itself raises.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

from redrive.core import taxonomy
from redrive.core.failure import Code
from redrive.core.verdict import RuleFunction, RuleTable, Verdict
from redrive.rules.shared.inspection import attribute, package_of, status_in, text_of, verdict_from_response
from redrive.rules.shared.oserrors import code_by_text, code_of

_CLIENT_CERTIFICATE_ALERTS: Final = (
    "ALERT_CERTIFICATE",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_ACCESS_DENIED",
)
_STOP_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT, 1})
"""Signals that operators and service managers send to end a process; 1 is SIGHUP, which Windows does not define."""

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
"""The module of a class named just "Error" or "error" -> its code."""


def _by_module(exc: BaseException, _now: float) -> Code | None:
    homes = (cls.__module__ for cls in type(exc).__mro__ if cls.__name__ in {"Error", "error"})
    return next((_ERRORS[home] for home in homes if home in _ERRORS), None)


def _os_error(exc: BaseException, now: float) -> Code | None:
    """Read the error number. Without one, a plain OSError or a foreign subclass comes from a library, not from a disk.

    Libraries raise it for invalid content ("image file is truncated"), which no retry heals.
    """
    known = code_of(exc)
    if known is None and type(exc) is OSError:
        return code_by_text(exc, now)
    is_stdlib = package_of(type(exc)) in sys.stdlib_module_names
    return known or (taxonomy.IO_ERROR if is_stdlib else None)


def _numbered_or(fallback: Code) -> RuleFunction:
    """Build a rule for a subclass of OSError: the number decides if there is one; EPERM and a Windows lock share a class."""
    return lambda exc, _now: code_of(exc) or fallback


def _file(fallback: Code) -> RuleFunction:
    def read(exc: BaseException, now: float) -> Verdict | Code | None:
        if _raised_in(exc, "subprocess"):
            # The program to run is missing or not executable: the installation is wrong, not the payload.
            return taxonomy.CONFIG_INVALID
        if attribute(exc, "errno") is None:
            from redrive.rules.obstore import missing_object

            return missing_object(exc, now) or fallback
        return code_of(exc) or fallback

    return read


def _raised_in(exc: BaseException, module: str) -> bool:
    """Return whether the innermost frame is in the module; nothing else identifies the exception of a missing program."""
    last = exc.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_globals.get("__name__") == module


def _timeout(exc: BaseException, _now: float) -> Code:
    """Distinguish network timeouts from local ones.

    The TimeoutError of asyncio and of futures has no arguments. A socket's has a number or the text "timed out". Any other text of
    the plain class comes from the program, mostly about a lock: no evidence against a dependency. multiprocessing has a class of
    its own, for a process that did not finish in time.
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
    """Recognise CPython's error about the limit on threads by its exact text; ignore every other RuntimeError."""
    is_limit = type(exc) is RuntimeError and exc.args == ("can't start new thread",)
    return taxonomy.RESOURCE_EXHAUSTED if is_limit else None


def _resolver(exc: BaseException, _now: float) -> Code:
    """Classify a failed name lookup. An unknown name is retryable: records appear late, and a starting resolver knows none."""
    import socket  # Already loaded, since the exception is its own; its numbers differ between platforms.

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
        # The server sends these alerts about the client's certificate.
        if any(alert in reason for alert in _CLIENT_CERTIFICATE_ALERTS):
            return taxonomy.AUTH_INVALID
    return taxonomy.NETWORK_TLS


def _stream_ended(exc: BaseException, _now: float) -> Code:
    """Classify EOFError: without arguments a pipe or FTP connection closed; with a text gzip or pickle got truncated content."""
    return taxonomy.SCHEMA_INVALID if exc.args else taxonomy.NETWORK_RESET


def _child_failed(exc: BaseException, _now: float) -> Code:
    """Classify how a child process ended.

    Only statuses that shells and kernels define have a code, and EX_TEMPFAIL, with which mailers and others ask for a retry. The
    meaning of any other status depends on the program (sysexits, curl and grep disagree), and the same input mostly fails again:
    it is an unknown failure, not retried, for which the user may add a rule.
    """
    status = attribute(exc, "returncode")
    if not isinstance(status, int):
        return taxonomy.BUG_UNKNOWN
    if status == 75:  # EX_TEMPFAIL
        return taxonomy.UPSTREAM_NOT_READY
    if status == 124:  # the `timeout` command's own
        return taxonomy.LOCAL_TIMEOUT
    if status in {126, 127}:  # the shell found no such program, or may not execute it
        return taxonomy.CONFIG_INVALID
    killed_by = -status if status < 0 else status - 128
    if 0 < killed_by < 65:
        return taxonomy.CANCELLED if killed_by in _STOP_SIGNALS else taxonomy.WORKER_CRASH
    return taxonomy.BUG_UNKNOWN


def _xml_rpc(exc: BaseException, now: float) -> Verdict | Code:
    answer = verdict_from_response(exc, now, status=status_in(exc, "errcode"))
    return answer or taxonomy.NETWORK_PROTOCOL


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
    "BrokenBarrierError": taxonomy.LOCAL_TIMEOUT,  # one thread timed out or aborted, so all others get this
    "Full": taxonomy.QUEUE_FULL,
    "QueueFull": taxonomy.QUEUE_FULL,
    "Empty": taxonomy.UPSTREAM_NOT_READY,
    "QueueEmpty": taxonomy.UPSTREAM_NOT_READY,
    "AuthenticationError": taxonomy.AUTH_INVALID,
    "KeyboardInterrupt": taxonomy.CANCELLED,
    "SystemExit": taxonomy.CANCELLED,
    "GeneratorExit": taxonomy.CANCELLED,
    # Formats: the content is malformed.
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
    # Decimal("abc") is by far the most common InvalidOperation; the other decimal errors are bugs in arithmetic.
    "InvalidOperation": taxonomy.SCHEMA_INVALID,
    "DecimalException": taxonomy.BUG_CODE,
    "NetrcParseError": taxonomy.CONFIG_INVALID,
    "PackageNotFoundError": taxonomy.CONFIG_INVALID,
    "Error": _by_module,
    "error": _by_module,
}
