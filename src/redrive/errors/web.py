# SPDX-License-Identifier: Apache-2.0
"""Errors about the body of a request, found while it is read. `status` is the HTTP status that answers it by default."""

from __future__ import annotations

from typing import ClassVar

from redrive.errors.root import RedriveError


class BodyError(RedriveError):
    """The body of a request cannot be accepted; the rest of it was not read."""

    code = "body"
    status: ClassVar[int] = 400


class BodyTooLargeError(BodyError):
    """The body has more bytes than allowed, as it is sent or after decompression."""

    code = "body-too-large"
    status = 413

    def __init__(self, *, limit: int, is_decompressed: bool) -> None:
        self.limit = limit
        self.is_decompressed = is_decompressed
        where = " after decompression" if is_decompressed else ""
        super().__init__(
            f"the body has more than {limit} bytes{where}",
            hint="Send less, or divide it into several requests.",
        )


class BodyInvalidError(BodyError):
    """The body is damaged, incomplete, or not what it is declared to be."""

    code = "body-invalid"

    def __init__(self, *, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the body is invalid: {problem}", hint="Correct the body and send it again.")


class BodyEncodingError(BodyError):
    """The Content-Encoding of the body is not supported here."""

    code = "body-encoding"
    status = 415

    def __init__(self, *, allowed: str) -> None:
        self.allowed = allowed
        super().__init__("the Content-Encoding is not supported", hint=f"Use {allowed}.")


class BodyTimeoutError(BodyError, TimeoutError):
    """No byte of the body arrived for too long."""

    code = "body-timeout"
    status = 408

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"no byte of the body arrived for {seconds:g} s", hint="Send the request again, without pauses."
        )
