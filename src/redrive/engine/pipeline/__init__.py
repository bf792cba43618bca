# SPDX-License-Identifier: Apache-2.0
"""What a user declares: stages, pipelines, resources, and the typed values that go through them."""
