# SPDX-License-Identifier: Apache-2.0
"""botocore and boto3 against a server that answers as S3, DynamoDB and SQS document it; botocore's own retries are off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest

from redrive.core.failure import Category, Failure
from redrive.engine.classifier import classify
from tests.wire.aws import make_client
from tests.wire.clients import HASTY_S, PATIENT_S
from tests.wire.server import (
    Behaviour,
    Certificates,
    Refusing,
    Serve,
    answer,
    disconnect,
    garbage,
    reset,
    silence,
    truncated_body,
)


def _s3_failure(address: str, **how: Any) -> Failure:
    client = make_client("s3", address, **how)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - what is raised is what is tested
        client.get_object(Bucket="bucket", Key="key")
    client.close()
    return classify(raised.value)


def _xml(word: str) -> bytes:
    # docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, "REST error responses"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{word}</Code><Message>As documented.</Message><Resource>/bucket/key</Resource>"
        "<RequestId>4442587FB7D0A2F9</RequestId></Error>"
    ).encode()


# docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, "List of error codes"
S3_ERRORS = [
    (403, "AccessDenied", "AUTH_DENIED", False),
    (400, "ExpiredToken", "AUTH_INVALID", False),
    (403, "InvalidAccessKeyId", "AUTH_INVALID", False),
    (403, "SignatureDoesNotMatch", "AUTH_INVALID", False),
    (403, "RequestTimeTooSkewed", "CONFIG_INVALID", False),
    (404, "NoSuchBucket", "NOT_FOUND", False),
    (404, "NoSuchKey", "NOT_FOUND", False),
    (400, "InvalidBucketName", "REQUEST_INVALID", False),
    (400, "InvalidArgument", "REQUEST_INVALID", False),
    (400, "MalformedXML", "SCHEMA_INVALID", False),
    (400, "EntityTooLarge", "REQUEST_TOO_LARGE", False),
    (412, "PreconditionFailed", "CONFLICT", False),
    (409, "OperationAborted", "CONFLICT", False),
    (400, "RequestTimeout", "NETWORK_TIMEOUT", True),
    (503, "SlowDown", "RATE_LIMITED", True),
    (500, "InternalError", "UPSTREAM_ERROR", True),
    (503, "ServiceUnavailable", "NETWORK_UNAVAILABLE", True),
    (501, "NotImplemented", "UPSTREAM_UNSUPPORTED", False),
]


@pytest.mark.untraced
@pytest.mark.req("CR-1.2", "CR-1.6", "CR-1.7")
@pytest.mark.parametrize(("status", "word", "code", "heals"), S3_ERRORS)
def test_an_answer_of_s3_means_what_its_code_says(
    serve: Serve, status: int, word: str, code: str, heals: bool
) -> None:
    failure = _s3_failure(serve(answer(status, _xml(word), {"x-amz-request-id": "4442587FB7D0A2F9"})).url)

    assert (failure.code, failure.retryable, failure.provider_code) == (code, heals, word)
    assert (failure.http_status, failure.request_id) == (status, "4442587FB7D0A2F9")


# docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html, "Error messages and codes"
DYNAMODB_ERRORS = [
    ("com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "RATE_LIMITED", True),
    ("com.amazon.coral.availability#ThrottlingException", "RATE_LIMITED", True),
    ("com.amazonaws.dynamodb.v20120810#RequestLimitExceeded", "RATE_LIMITED", True),
    ("com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", "CONFLICT", False),
    ("com.amazonaws.dynamodb.v20120810#TransactionConflictException", "CONFLICT", False),
    ("com.amazonaws.dynamodb.v20120810#ResourceNotFoundException", "NOT_FOUND", False),
    ("com.amazon.coral.validate#ValidationException", "REQUEST_INVALID", False),
    ("com.amazon.coral.service#AccessDeniedException", "AUTH_DENIED", False),
    ("com.amazon.coral.service#UnrecognizedClientException", "AUTH_INVALID", False),
    ("com.amazon.coral.service#ExpiredTokenException", "AUTH_INVALID", False),
    ("com.amazon.coral.service#SerializationException", "SCHEMA_INVALID", False),
]


@pytest.mark.untraced
@pytest.mark.req("CR-1.2", "CR-1.4", "CR-1.5")
@pytest.mark.parametrize(("kind", "code", "heals"), DYNAMODB_ERRORS)
def test_a_400_of_dynamodb_means_what_its_type_says(serve: Serve, kind: str, code: str, heals: bool) -> None:
    body = {"__type": kind, "message": "as documented"}
    headers = {"content-type": "application/x-amz-json-1.0", "x-amzn-requestid": "ABC"}
    client = make_client("dynamodb", serve(answer(400, body, headers)).url)

    with pytest.raises(botocore.exceptions.ClientError) as raised:
        client.get_item(TableName="table", Key={"id": {"S": "1"}})
    client.close()
    failure = classify(raised.value)

    assert (failure.code, failure.retryable) == (code, heals)
    assert (failure.http_status, failure.request_id) == (400, "ABC")
    assert failure.provider_code == kind.rsplit("#", 1)[-1]


def test_an_identity_provider_that_cannot_be_reached_heals_although_it_is_a_400(serve: Serve) -> None:
    # docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html, "Errors"
    body = (
        b"<ErrorResponse><Error><Type>Sender</Type><Code>IDPCommunicationError</Code></Error></ErrorResponse>"
    )
    client = make_client("sts", serve(answer(400, body, {"content-type": "text/xml"})).url)

    with pytest.raises(botocore.exceptions.ClientError) as raised:
        client.assume_role_with_web_identity(
            RoleArn="arn:aws:iam::123456789012:role/x", RoleSessionName="xx", WebIdentityToken="made-up"
        )
    client.close()
    failure = classify(raised.value)

    assert (failure.code, failure.retryable, failure.http_status) == ("NETWORK_UNAVAILABLE", True, 400)


@pytest.mark.parametrize("word", ["ModelErrorException", "ModelStreamErrorException"])
def test_a_model_of_bedrock_that_failed_heals_although_it_is_a_424(serve: Serve, word: str) -> None:
    # docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModel.html, "Errors"
    headers = {"x-amzn-errortype": word, "content-type": "application/json"}
    client = make_client("bedrock-runtime", serve(answer(424, {"message": "as documented"}, headers)).url)

    with pytest.raises(botocore.exceptions.ClientError) as raised:
        client.invoke_model(modelId="made-up", body=b"{}")
    client.close()
    failure = classify(raised.value)

    assert (failure.code, failure.retryable, failure.provider_code) == ("UPSTREAM_ERROR", True, word)


@pytest.mark.req("CR-1.4")
def test_a_failed_condition_heals_for_an_idempotent_stage(serve: Serve) -> None:
    body = {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", "message": "no"}
    client = make_client("dynamodb", serve(answer(400, body)).url)

    with pytest.raises(botocore.exceptions.ClientError) as raised:
        client.put_item(TableName="table", Item={"id": {"S": "1"}})
    client.close()

    assert classify(raised.value, idempotent=True).retryable


@pytest.mark.req("CR-1.7")
def test_a_deleted_queue_of_sqs_is_not_found(serve: Serve) -> None:
    # docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html, "Errors"
    body = {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "The specified queue does not exist."}
    listener = serve(
        answer(400, body, {"x-amzn-query-error": "AWS.SimpleQueueService.NonExistentQueue;Sender"})
    )
    client = make_client("sqs", listener.url)

    with pytest.raises(botocore.exceptions.ClientError) as raised:
        client.send_message(QueueUrl=f"{listener.url}/1/queue", MessageBody="x")
    client.close()
    failure = classify(raised.value)

    assert (failure.code, failure.retryable, failure.http_status) == ("NOT_FOUND", False, 400)


def test_the_answer_to_a_head_request_has_no_body_and_keeps_its_status(serve: Serve) -> None:
    client = make_client("s3", serve(answer(404)).url)

    with pytest.raises(botocore.exceptions.ClientError) as raised:
        client.head_object(Bucket="bucket", Key="key")
    client.close()

    assert (classify(raised.value).code, classify(raised.value).http_status) == ("NOT_FOUND", 404)


def test_retry_after_is_honoured(serve: Serve) -> None:
    assert _s3_failure(serve(answer(503, _xml("SlowDown"), {"retry-after": "4"})).url).retry_after == 4.0


@pytest.mark.req("CR-1.1")
@pytest.mark.parametrize(
    ("behave", "code"),
    [
        (reset, "NETWORK_RESET"),
        (disconnect, "NETWORK_RESET"),
        (garbage, "NETWORK_PROTOCOL"),
        (silence, "NETWORK_TIMEOUT"),
    ],
)
def test_a_connection_that_fails_heals(serve: Serve, behave: Behaviour, code: str) -> None:
    failure = _s3_failure(serve(behave).url, timeout=HASTY_S if behave is silence else PATIENT_S)

    assert (failure.code, failure.category, failure.retryable) == (code, Category.NETWORK, True)


@pytest.mark.req("CR-1.1")
def test_refused_and_unresolved_are_told_apart(refusing: Refusing) -> None:
    assert _s3_failure(refusing.url).code == "NETWORK_REFUSED"
    assert _s3_failure("http://nowhere.invalid").code == "NETWORK_DNS"


@pytest.mark.req("CR-1.1")
def test_a_body_that_ends_too_early_heals(serve: Serve) -> None:
    client = make_client("s3", serve(truncated_body).url)
    body = client.get_object(Bucket="bucket", Key="key")["Body"]

    with pytest.raises(Exception) as raised:  # noqa: PT011
        body.read()
    client.close()

    assert (classify(raised.value).code, classify(raised.value).retryable) == ("NETWORK_PROTOCOL", True)


def test_an_untrusted_certificate_does_not_heal(serve: Serve, certificates: Certificates) -> None:
    failure = _s3_failure(serve(answer(200), tls=certificates.untrusted).url)

    assert (failure.code, failure.retryable) == ("TLS_CERTIFICATE", False)


@pytest.mark.parametrize(("status", "code"), [(403, "NETWORK_PROXY"), (407, "AUTH_INVALID")])
def test_a_proxy_that_refuses_the_tunnel_is_the_proxys_failure(serve: Serve, status: int, code: str) -> None:
    proxy = serve(answer(status))

    assert _s3_failure("https://nowhere.invalid", proxies={"https": proxy.url}).code == code


def test_missing_credentials_and_regions_are_wrong_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    session = boto3.session.Session()

    with pytest.raises(botocore.exceptions.NoCredentialsError) as no_credentials:
        session.client("s3", region_name="eu-central-1").list_buckets()
    with pytest.raises(botocore.exceptions.NoRegionError) as no_region:
        session.client("sqs")

    assert {classify(no_credentials.value).code, classify(no_region.value).code} == {"CONFIG_INVALID"}


@pytest.mark.req("CR-1.5")
def test_a_parameter_of_the_wrong_type_does_not_heal(refusing: Refusing) -> None:
    client = make_client("s3", refusing.url)

    with pytest.raises(botocore.exceptions.ParamValidationError) as raised:
        client.get_object(Bucket="bucket", Key=7)
    client.close()

    assert (classify(raised.value).code, classify(raised.value).category) == (
        "REQUEST_INVALID",
        Category.VALIDATION,
    )


@pytest.mark.req("CR-1.6")
def test_a_failed_upload_is_what_the_call_beneath_it_says(serve: Serve, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"content")
    client = make_client("s3", serve(answer(403, _xml("AccessDenied"))).url)

    with pytest.raises(boto3.exceptions.S3UploadFailedError) as raised:
        client.upload_file(str(source), "bucket", "key")
    client.close()

    assert (classify(raised.value).code, classify(raised.value).http_status) == ("AUTH_DENIED", 403)


def test_a_waiter_that_ran_out_of_attempts_is_not_ready_yet(serve: Serve) -> None:
    client = make_client("s3", serve(answer(404)).url)

    with pytest.raises(botocore.exceptions.WaiterError) as raised:
        client.get_waiter("object_exists").wait(
            Bucket="bucket", Key="key", WaiterConfig={"MaxAttempts": 1, "Delay": 0}
        )
    client.close()
    failure = classify(raised.value)

    assert (failure.code, failure.retryable) == ("UPSTREAM_NOT_READY", True)
