-- SPDX-License-Identifier: Apache-2.0
-- Version 3: a job can be skipped, and is found by its key and its parent; sinks return receipts, pruning can be scheduled, the trace
-- of a submitter is stored, there are limits and keys of jobs, and the jobs of an owner are found by an index.
-- A run has a key, a label and an owner, and its status is decided by any worker.

-- Only conditions change, and nothing that is stored: SQLite's own way to do that without copying every job and attempt.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'WHEN ''cancelled'' THEN', 'WHEN ''skipped'' THEN finished_at IS NOT NULL
            AND coalesce(lease_token, worker_id, error_code, result, result_from) IS NULL
        WHEN ''cancelled'' THEN') WHERE type = 'table' AND name = 'jobs';
UPDATE sqlite_schema SET sql = replace(sql, 'OR outcome = ''cancelled''', 'OR outcome = ''cancelled'' OR outcome = ''skipped''')
WHERE type = 'table' AND name = 'attempts';
UPDATE sqlite_schema SET sql = replace(sql, '''aborted'', ''paused'')', '''aborted'', ''paused'', ''cancelled'')')
WHERE type = 'table' AND name = 'runs';
UPDATE sqlite_schema SET sql = replace(sql, '(''letters'', ''breakers'')', '(''letters'', ''breakers'', ''runs'')')
WHERE type = 'table' AND name = 'listeners';
PRAGMA writable_schema = RESET;

CREATE TABLE receipts (
    letter_id INTEGER NOT NULL,
    sink TEXT NOT NULL,
    receipt TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (letter_id, sink)
) STRICT, WITHOUT ROWID;

CREATE TABLE retentions (
    name TEXT PRIMARY KEY,
    ages BLOB NOT NULL,
    cron TEXT NOT NULL,
    zone TEXT NOT NULL,
    next_at REAL NOT NULL,
    last_at REAL,
    deleted TEXT,
    driver TEXT,
    driven_until REAL NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE job_traces (
    job_id INTEGER PRIMARY KEY,
    traceparent TEXT NOT NULL
) STRICT;

-- Limits; and jobs have keys in the lanes whose limits or breaker have some.
CREATE TABLE limits (
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    state BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;

ALTER TABLE lanes ADD COLUMN keyed_by TEXT;
ALTER TABLE jobs ADD COLUMN lane_key TEXT;
DROP INDEX jobs_ready;

ALTER TABLE runs ADD COLUMN key TEXT;
ALTER TABLE runs ADD COLUMN label TEXT;
ALTER TABLE runs ADD COLUMN owner TEXT;
ALTER TABLE runs ADD COLUMN children INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN driven_until REAL NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN run_id INTEGER;
ALTER TABLE dead_letters ADD COLUMN run_id INTEGER;
UPDATE dead_letters SET run_id = (SELECT jobs.run_id FROM jobs WHERE jobs.id = job_id);

-- A copy is an installation of its own; imported jobs keep their origin.
ALTER TABLE jobs ADD COLUMN origin TEXT;
CREATE TABLE installations (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    first_job INTEGER NOT NULL,
    first_letter INTEGER NOT NULL,
    secret BLOB NOT NULL,
    file INTEGER
) STRICT;
INSERT INTO installations (id, first_job, first_letter, secret) SELECT id, 0, 0, randomblob(32) FROM installation;
DROP TABLE installation;
-- From hashes without a key, short inputs could be found by trying them all.
UPDATE letter_facts SET context = CAST(json_remove(CAST(context AS TEXT), '$.input_sha256') AS BLOB)
WHERE json_valid(CAST(context AS TEXT));

-- What an act was about has a kind and an id, so that the name of a file is never taken for a letter.
CREATE TEMPORARY TABLE old_operations AS SELECT * FROM operations;
DROP TABLE operations;
CREATE TABLE operations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    verb TEXT NOT NULL,
    subject_kind TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    reason TEXT,
    letters INTEGER,
    change TEXT
) STRICT;
INSERT INTO operations
SELECT id, at, actor, verb, CASE WHEN is_path THEN 'file' ELSE substr(subject, 1, instr(subject, ' ') - 1) END,
    CASE WHEN is_path THEN subject ELSE substr(subject, instr(subject, ' ') + 1) END, reason, letters, change
FROM (SELECT *, verb IN ('backup', 'transfer') AND subject NOT LIKE 'file %' AS is_path FROM old_operations);
DROP TABLE old_operations;
