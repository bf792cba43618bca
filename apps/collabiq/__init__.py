# SPDX-License-Identifier: Apache-2.0
"""CollabIQ: reads mail, finds out who wants to work together with whom on what, and keeps a page about each.

    sources   where mail comes from: an mbox or Maildir, IMAP, the Gmail API
    mail      from the bytes of a mail to its text, whatever state they are in
    extract   from a text to people, companies, dates and the kind of collaboration: built in, or by Gemini
    sinks     where pages go: SQLite and Markdown, or Notion
    secrets   where keys come from: Infisical, or the .env file
    pipeline  the three stages, with their policies and breakers
    records   what is written down about failures, and `files`, where it is written; `values` checks both
    cli       the `collabiq` command

Nothing here retries, counts failures or keeps dead letters: redrive does.
"""
