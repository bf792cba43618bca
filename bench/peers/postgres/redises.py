# SPDX-License-Identifier: Apache-2.0
"""A Redis server for the peers that need a broker: as it comes, so that nothing waits for the disk."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time

import redis

ADDRESS = "REDRIVE_BENCH_REDIS"


def start() -> redis.Redis:
    """Start a server for this process and those that it starts, and return a connection to it."""
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("there is no redis-server; install it with: apt-get install redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="redrive-bench-")
    # With its parent it ends, too: nobody else looks after it.
    command = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        folder,
    ]
    subprocess.Popen(command, stdout=subprocess.DEVNULL)
    os.environ[ADDRESS] = f"redis://127.0.0.1:{port}/0"
    server = connected()
    for _ in range(200):
        try:
            server.ping()
        except redis.ConnectionError:
            time.sleep(0.05)
        else:
            break
    return server


def connected() -> redis.Redis:
    """Connect to the server that this process, or the one that started it, has started."""
    return redis.Redis.from_url(os.environ[ADDRESS])
