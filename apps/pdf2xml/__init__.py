# SPDX-License-Identifier: Apache-2.0
"""PDF to XML: upload a PDF, have it converted through a gateway, download the XML."""
