# SPDX-License-Identifier: Apache-2.0
"""AWS clients that talk to a server of our own, with botocore's own retries off."""

from __future__ import annotations

from functools import cache
from typing import Any

import boto3
from botocore.config import Config

from tests.wire.clients import PATIENT_S


@cache
def _session() -> boto3.session.Session:
    """A session remembers the service descriptions, which take half a second to load."""
    return boto3.session.Session()


def make_client(service: str, address: str, *, timeout: float = PATIENT_S, **more: object) -> Any:
    config = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=timeout,
        read_timeout=timeout,
        s3={"addressing_style": "path"},
        **more,
    )
    return _session().client(
        service,
        endpoint_url=address,
        region_name="eu-central-1",
        aws_access_key_id="made-up",
        aws_secret_access_key="made-up",
        config=config,
    )
