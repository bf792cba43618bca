# SPDX-License-Identifier: Apache-2.0
"""smtplib, imaplib, poplib and ftplib against servers on real sockets that follow a script."""

from __future__ import annotations

import ftplib
import imaplib
import poplib
import smtplib
import socket
from typing import Any

import pytest

from redrive.core.failure import Failure
from tests.wire_store.catching import failure_of
from tests.wire_store.sockets import Talk, greeting, listening


def smtp_server(**answers: bytes) -> Talk:
    """Build a server that agrees to everything except where told otherwise, by command; `greeting` is its first word."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(answers.get("greeting", b"220 hello\r\n"))
        usual = {
            "ehlo": b"250-here\r\n250 AUTH LOGIN PLAIN\r\n",
            "data": b"354 go on\r\n",
            "quit": b"221 bye\r\n",
        }
        with connection.makefile("rb") as lines:
            for line in lines:
                command = line.split()[0].lower().decode()
                if command == "." and "content" in answers:
                    command = "content"
                connection.sendall(answers.get(command, usual.get(command, b"250 ok\r\n")))
                if command == "data" and answers.get("data", b"3")[:1] == b"3":
                    while lines.readline() != b".\r\n":
                        pass
                    connection.sendall(answers.get("content", b"250 ok\r\n"))

    return talk


def sending(*recipients: str, login: bool = False, **answers: bytes) -> Failure:
    def send(port: int) -> None:
        client = smtplib.SMTP("127.0.0.1", port, local_hostname="client", timeout=5)
        try:
            if login:
                client.login("user", "password")
            client.sendmail("me@example.org", recipients or ("you@example.org",), "Subject: x\r\n\r\nhello")
        finally:
            client.close()

    with listening(smtp_server(**answers)) as port:
        return failure_of(send, port)


@pytest.mark.parametrize(
    ("command", "reply", "code", "retryable"),
    [
        ("rcpt", b"450 4.2.1 busy, try again\r\n", "UPSTREAM_NOT_READY", True),
        ("rcpt", b"451 4.7.1 greylisted\r\n", "UPSTREAM_NOT_READY", True),
        ("rcpt", b"452 4.5.3 too many recipients\r\n", "UPSTREAM_OVERLOADED", True),
        ("rcpt", b"550 5.1.1 no such user\r\n", "NOT_FOUND", False),
        ("rcpt", b"550 5.7.1 relaying denied\r\n", "REJECTED_POLICY", False),
        ("mail", b"421 4.3.2 shutting down\r\n", "NETWORK_UNAVAILABLE", True),
        ("mail", b"530 5.7.0 authentication required\r\n", "AUTH_INVALID", False),
        ("mail", b"553 5.1.8 bad sender\r\n", "REQUEST_INVALID", False),
        ("content", b"554 5.7.1 spam\r\n", "REJECTED_POLICY", False),
        ("content", b"550 5.7.1 content refused\r\n", "REJECTED_POLICY", False),
        ("content", b"552 5.3.4 too large\r\n", "REQUEST_TOO_LARGE", False),
        ("content", b"451 4.3.0 local error\r\n", "UPSTREAM_NOT_READY", True),
        ("greeting", b"554 go away\r\n", "REJECTED_POLICY", False),
        ("greeting", b"421 busy\r\n", "NETWORK_UNAVAILABLE", True),
        ("greeting", b"garbage\r\n", "NETWORK_PROTOCOL", True),
    ],
)
def test_smtp_replies_say_whether_they_heal(command: str, reply: bytes, code: str, retryable: bool) -> None:
    failure = sending(login=False, **{command: reply})

    assert (failure.code, failure.retryable) == (code, retryable)


@pytest.mark.req("CR-1.6")
def test_smtp_logins_that_fail_for_good_and_for_the_moment() -> None:
    refused = sending(login=True, auth=b"535 5.7.8 bad credentials\r\n")
    for_the_moment = sending(login=True, auth=b"454 4.7.0 temporary failure\r\n")

    assert (refused.code, refused.retryable) == ("AUTH_INVALID", False)
    assert (for_the_moment.code, for_the_moment.retryable) == ("UPSTREAM_NOT_READY", True)


def test_smtp_servers_without_the_feature_are_not_asked_again() -> None:
    assert sending(login=True, ehlo=b"250 nothing\r\n").code == "UPSTREAM_UNSUPPORTED"
    assert sending(login=True, ehlo=b"250-here\r\n250 AUTH NOVEL\r\n").code == "CONFIG_INVALID"


def test_one_recipient_refused_for_the_moment_makes_the_whole_message_worth_another_try() -> None:
    replies = iter([b"550 5.1.1 no such user\r\n", b"450 4.2.1 busy\r\n"])

    def answer(command: str) -> bytes:
        return next(replies) if command == "rcpt" else b"221 bye\r\n" if command == "quit" else b"250 ok\r\n"

    def send(port: int) -> None:
        with smtplib.SMTP("127.0.0.1", port, local_hostname="client", timeout=5) as client:
            client.sendmail("me@example.org", ["gone@example.org", "busy@example.org"], "hello")

    def talk(connection: socket.socket) -> None:
        connection.sendall(b"220 hello\r\n")
        with connection.makefile("rb") as lines:
            for line in lines:
                connection.sendall(answer(line.split()[0].lower().decode()))

    with listening(talk) as port:
        failure = failure_of(send, port)

    assert (failure.code, failure.retryable, failure.provider_code) == ("UPSTREAM_NOT_READY", True, "450")


def connecting(kind: type[Any], port: int, timeout: float = 5) -> Failure:
    """Return how making a connection fails; some of these clients leave the socket open when their constructor raises."""
    client: Any = ftplib.FTP() if kind is ftplib.FTP else object.__new__(kind)
    connect = client.connect if kind is ftplib.FTP else client.__init__
    try:
        return failure_of(connect, "127.0.0.1", port, timeout=timeout)
    finally:
        for name in ("file", "_file", "sock"):
            left_open = getattr(client, name, None)
            if left_open is not None:
                left_open.close()


CLIENTS = [smtplib.SMTP, imaplib.IMAP4, poplib.POP3, ftplib.FTP]


@pytest.mark.req("CR-1.1")
@pytest.mark.parametrize("client", CLIENTS)
def test_servers_that_refuse_or_stay_silent_heal(
    client: type[Any], closed_port: int, silent_port: int
) -> None:
    assert connecting(client, closed_port).code == "NETWORK_REFUSED"
    assert connecting(client, silent_port, timeout=0.05).code == "NETWORK_TIMEOUT"


@pytest.mark.parametrize("client", CLIENTS)
def test_servers_that_hang_up_without_a_word_are_resets(client: type[Any]) -> None:
    def goodbye(_connection: socket.socket) -> None:
        """Close at once."""

    with listening(goodbye) as port:
        failure = connecting(client, port)

    assert (failure.code, failure.retryable) == ("NETWORK_RESET", True)


def imap(reply: bytes, call: str, *args: str) -> Failure:
    """Log in over IMAP and make one call that gets this reply; TAG stands for the command's tag."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(b"* OK ready\r\n")
        with connection.makefile("rb") as lines:
            for line in lines:
                tag, command = line.split()[:2]
                if command == b"CAPABILITY":
                    connection.sendall(b"* CAPABILITY IMAP4REV1\r\n" + tag + b" OK done\r\n")
                elif command == b"LOGIN" and call != "login":
                    connection.sendall(tag + b" OK done\r\n")
                elif reply:
                    connection.sendall(reply.replace(b"TAG", tag))
                else:
                    return

    def run(port: int) -> None:
        client = imaplib.IMAP4("127.0.0.1", port, timeout=5)
        try:
            if call != "login":
                client.login("user", "password")
            getattr(client, call)(*args)
        finally:
            client.shutdown()

    with listening(talk) as port:
        return failure_of(run, port)


@pytest.mark.parametrize(
    ("reply", "call", "code", "retryable"),
    [
        (b"TAG NO [AUTHENTICATIONFAILED] wrong\r\n", "login", "AUTH_INVALID", False),
        (b"TAG NO [UNAVAILABLE] try later\r\n", "login", "NETWORK_UNAVAILABLE", True),
        (b"TAG NO [LIMIT] too many connections\r\n", "login", "RATE_LIMITED", True),
        (b"TAG NO no\r\n", "login", "REQUEST_INVALID", False),
        (b"TAG BAD what?\r\n", "noop", "REQUEST_INVALID", False),
        (b"* BYE shutting down\r\n", "noop", "NETWORK_RESET", True),
        (b"", "noop", "NETWORK_RESET", True),
    ],
)
def test_imap_refusals_are_read_by_their_response_code_and_lost_connections_heal(
    reply: bytes, call: str, code: str, retryable: bool
) -> None:
    args = ("user", "password") if call == "login" else ()

    failure = imap(reply, call, *args)

    assert (failure.code, failure.retryable) == (code, retryable)


def test_imap_commands_out_of_order_are_not_retried() -> None:
    assert not imap(b"TAG OK\r\n", "search", "ALL").retryable


@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        (b"-ERR [AUTH] wrong password\r\n", "AUTH_INVALID", False),
        (b"-ERR [IN-USE] mailbox is open elsewhere\r\n", "UPSTREAM_NOT_READY", True),
        (b"-ERR [LOGIN-DELAY] not so often\r\n", "RATE_LIMITED", True),
        (b"-ERR [SYS/TEMP] disk trouble\r\n", "UPSTREAM_NOT_READY", True),
        (b"-ERR no\r\n", "REQUEST_INVALID", False),
    ],
)
def test_pop_refusals_are_read_by_their_response_code(reply: bytes, code: str, retryable: bool) -> None:
    def run(port: int) -> None:
        client = poplib.POP3("127.0.0.1", port, timeout=5)
        try:
            client.user("me")
        finally:
            client.close()

    with listening(greeting(b"+OK ready\r\n", reply)) as port:
        failure = failure_of(run, port)

    assert (failure.code, failure.retryable) == (code, retryable)


@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        (b"421 timeout\r\n", "NETWORK_UNAVAILABLE", True),
        (b"426 data connection broke\r\n", "NETWORK_RESET", True),
        (b"450 file busy\r\n", "UPSTREAM_NOT_READY", True),
        (b"452 no space\r\n", "UPSTREAM_OVERLOADED", True),
        (b"530 not logged in\r\n", "AUTH_INVALID", False),
        (b"550 no such file\r\n", "NOT_FOUND", False),
        (b"552 quota exceeded\r\n", "QUOTA_EXHAUSTED", False),
        (b"502 not implemented\r\n", "UPSTREAM_UNSUPPORTED", False),
        (b"501 bad argument\r\n", "REQUEST_INVALID", False),
        (b"what?\r\n", "NETWORK_PROTOCOL", True),
        (b"150 unexpected\r\n", "NETWORK_PROTOCOL", True),
    ],
)
@pytest.mark.req("CR-1.7")
def test_ftp_replies_say_whether_they_heal(reply: bytes, code: str, retryable: bool) -> None:
    def run(port: int) -> None:
        with ftplib.FTP() as client:
            client.connect("127.0.0.1", port, timeout=5)
            client.delete("file")

    with listening(greeting(b"220 hello\r\n", reply, b"221 bye\r\n")) as port:
        failure = failure_of(run, port)

    assert (failure.code, failure.retryable) == (code, retryable)


def test_smtp_connections_that_break_later_heal() -> None:
    with listening(greeting(b"220 hello\r\n", b"250 ok\r\n")) as port:
        client = smtplib.SMTP("127.0.0.1", port, local_hostname="client", timeout=5)
        client.ehlo()
        assert client.sock is not None
        client.sock.shutdown(socket.SHUT_RDWR)
        failure = failure_of(client.noop)
        client.close()

    assert (failure.code, failure.retryable) == ("NETWORK_RESET", True)
