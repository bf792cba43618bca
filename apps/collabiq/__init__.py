# SPDX-License-Identifier: Apache-2.0
"""CollabIQ: reads mail, extracts who wants to collaborate with whom on what, and writes a page about each mail.

    sources   read mail from an mbox or Maildir, IMAP, or the Gmail API
    mail      parse the bytes of a mail, even malformed ones, into text
    extract   find people, companies, dates and the kind of collaboration: by built-in rules, or by Gemini
    sinks     write pages to SQLite and Markdown, or to Notion
    secrets   get keys from Infisical, or from the .env file
    service_calls  call a service before any mail is read, with its policy and breaker
    pipeline  the three stages, with their policies and breakers
    records   the records of failures; `files` writes them, `values` checks their fields
    cli       the `collabiq` command

redrive does all retries, failure counts and dead letters.
"""
