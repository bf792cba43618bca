# SPDX-License-Identifier: Apache-2.0
"""Uploads to Google Cloud Storage and to Azure, over HTTP to servers that speak their protocols; `test_jobs` has those to S3."""

from __future__ import annotations

import hashlib

import pytest

from apps.fetchbox.tests.box import Box
from apps.fetchbox.tests.clouds import Cloud
from apps.fetchbox.tests.servers import LARGE

PARTS = {
    "google": {"POST {0} uploads": 1, "PUT {0} partNumber": 2, "POST {0} uploadId": 1},
    "azure": {"PUT {0} block": 2, "PUT {0} blocklist": 1},
}
"""The requests that an object of eight megabytes takes."""


@pytest.fixture(params=["google", "azure"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cloud(kind: str, gcs: Cloud, azure: Cloud) -> Cloud:
    return {"google": gcs, "azure": azure}[kind]


def writes(cloud: Cloud, name: str) -> dict[str, int]:
    """Return the requests that wrote an object, by kind."""
    counted = dict(cloud.requests)
    return {each: count for each, count in counted.items() if each.split()[1] == name and each[0] == "P"}


def test_objects_are_uploaded_once_whole_with_their_checksum_and_large_ones_in_parts(
    box: Box, kind: str, cloud: Cloud
) -> None:
    first = box.done(f"/large/{kind}", f"small=/file/{kind}", type=kind)
    again = box.done(f"/large/{kind}", f"small=/file/{kind}", type=kind)

    assert (first["status"], again["status"]) == ("completed", "completed")
    large, small = cloud.objects[f"large-{kind}"], cloud.objects["small"]
    assert (large.content, small.content) == (LARGE * 4, kind.encode() * 100)
    digest = hashlib.sha256(small.content).hexdigest()
    assert [value for name, value in small.headers.items() if name.endswith("-meta-sha256")] == [digest]
    assert small.headers["content-type"] == "text/plain"
    # The second job found both there.
    assert writes(cloud, "small") == {"PUT small": 1}
    assert writes(cloud, f"large-{kind}") == {
        each.format(f"large-{kind}"): count for each, count in PARTS[kind].items()
    }


@pytest.mark.req("FB-4.1")
def test_an_upload_is_retried_on_5xx_and_throttling_and_the_client_retries_nothing(
    box: Box, kind: str, cloud: Cloud
) -> None:
    cloud.faults["heals"] = [(500, "InternalError"), (503, "ServerBusy")]
    cloud.faults["dies"] = [(-503, "ServerBusy")]

    job = box.accepted(f"heals=/file/heals-{kind}", f"dies=/file/dies-{kind}", type=kind)
    snapshot = box.ended(job)

    assert (snapshot["status"], snapshot["resources_completed"]) == ("partial", 1)
    assert (writes(cloud, "heals"), writes(cloud, "dies")) == ({"PUT heals": 3}, {"PUT dies": 3})
    assert snapshot["last_error"]["code"] == "UPLOAD_THROTTLED"
    assert box.origin.requests[f"/file/heals-{kind}"] == 1


def test_an_object_whose_last_step_fails_is_not_visible_and_is_uploaded_again(
    box: Box, kind: str, cloud: Cloud
) -> None:
    name = f"large-again-{kind}"
    steps = sum(PARTS[kind].values())
    cloud.faults[name] = [*[(0, "")] * (steps - 1), (503, "ServerBusy")]

    snapshot = box.done(f"/large/again/{kind}", type=kind)

    assert snapshot["status"] == "completed"
    assert not cloud.early
    assert sum(writes(cloud, name).values()) == 2 * steps
    assert cloud.objects[name].content == LARGE * 4


@pytest.mark.req("FB-4.2")
def test_denied_access_and_a_bucket_that_is_not_there_are_not_retried(
    box: Box, kind: str, cloud: Cloud
) -> None:
    cloud.faults["denied"] = [(-403, "AuthorizationFailure")]

    denied = box.done(f"denied=/file/denied-{kind}", type=kind)
    refused = box.post(box.manifest("/file/x", type=f"no{kind}"))

    assert (denied["status"], denied["last_error"]["code"]) == ("failed", "UPLOAD_ACCESS_DENIED")
    assert writes(cloud, "denied") == {"PUT denied": 1}
    assert (refused.status_code, refused.json()["code"]) == (503, "STORAGE_UNAVAILABLE")
