# SPDX-License-Identifier: Apache-2.0
"""The gateway: a service of its own that turns a PDF into XML.

    mappings   what the XML looks like: text, layout
    child      the process that opens PDFs, with limits of its own
    converter  a pool of such processes; one that hangs or dies takes its conversion with it, and nothing else
    service    the HTTP API
    faults     failures on demand, for tests

It shares no file and no database with the API and the worker; another gateway with the same two routes can stand in its place.
"""
