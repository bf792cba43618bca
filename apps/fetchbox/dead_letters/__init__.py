# SPDX-License-Identifier: Apache-2.0
"""Dead letters as protobuf messages on a stream: the message, the sink, and an example of a consumer."""
