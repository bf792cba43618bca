# SPDX-License-Identifier: Apache-2.0
"""Runs the suite on other servers: `python -m tests.conformance` on the one whose programs REDRIVE_TEST_POSTGRES names.

`python -m tests.conformance pgbouncer` runs it through a PgBouncer in transaction mode, so that a session is a transaction's;
`python -m tests.conformance partitions` on a server with the attempts in partitions.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.postgres_server import PostgresServer

CONF = """
[databases]
postgres = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 200
default_pool_size = 20
"""
SECONDS_MAX = 20.0


@contextmanager
def pooled(server: PostgresServer) -> Generator[str]:
    """Return the address of a pooler in front of a server."""
    program = shutil.which("pgbouncer")
    if program is None:
        raise SystemExit(
            "error: there is no pgbouncer; on Debian and Ubuntu install it with: apt-get install pgbouncer"
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    conf = server.folder / "pgbouncer.ini"
    conf.write_text(CONF.format(server=server.port, port=port), encoding="utf-8")
    user = "nobody" if os.geteuid() == 0 else None
    with subprocess.Popen([program, "-q", str(conf)], user=user) as process:
        try:
            _wait_for(port)
            yield server.address_by(port)
        finally:
            process.terminate()


def _wait_for(port: int) -> None:
    end_at = time.monotonic() + SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > end_at:
                raise
        else:
            return


def run(address: str, *tests: str) -> int:
    """Run tests on a server."""
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-k", "postgres", *tests]
    environment = {**os.environ, "REDRIVE_TEST_DATABASE_URL": address}
    return subprocess.run(words, env=environment, check=False).returncode


def main() -> int:
    here = Path(__file__).parent
    if sys.argv[1:] == ["partitions"]:
        os.environ["REDRIVE_TEST_PARTITIONS"] = "1"
    with closing(PostgresServer()) as server:
        if sys.argv[1:] != ["pgbouncer"]:
            return run(server.address, str(here))
        with pooled(server) as address:
            # The other tests there are about sessions.
            return run(address, str(here / "test_store.py"))


if __name__ == "__main__":
    raise SystemExit(main())
