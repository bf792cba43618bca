-- SPDX-License-Identifier: Apache-2.0
-- Version 3: a job can be skipped, sinks return receipts, pruning can be scheduled, the trace of a submitter is stored, there are limits
-- and keys of jobs, and the jobs of an owner are found by an index.

-- Only conditions change, and nothing that is stored: SQLite's own way to do that without copying every job and attempt.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'WHEN ''cancelled'' THEN', 'WHEN ''skipped'' THEN finished_at IS NOT NULL
            AND coalesce(lease_token, worker_id, error_code, result, result_from) IS NULL
        WHEN ''cancelled'' THEN') WHERE type = 'table' AND name = 'jobs';
UPDATE sqlite_schema SET sql = replace(sql, 'OR outcome = ''cancelled''', 'OR outcome = ''cancelled'' OR outcome = ''skipped''')
WHERE type = 'table' AND name = 'attempts';
PRAGMA writable_schema = RESET;

DROP TRIGGER jobs_replayed;
CREATE TRIGGER jobs_replayed AFTER UPDATE OF finished_at ON jobs
WHEN NEW.round > 1 AND NEW.finished_at IS NOT NULL AND NEW.status <> 'failed'
    AND EXISTS (SELECT 1 FROM dead_letters WHERE job_id = NEW.id AND state = 'replaying')
BEGIN
    UPDATE dead_letters SET state = 'resolved', verdict = CASE NEW.status WHEN 'cancelled' THEN 'cancelled' ELSE 'completed' END,
        closed_at = NEW.finished_at
    WHERE job_id = NEW.id AND state = 'replaying';
END;

CREATE TABLE receipts (
    letter_id INTEGER NOT NULL,
    sink TEXT NOT NULL,
    receipt TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (letter_id, sink)
) STRICT, WITHOUT ROWID;

DROP TRIGGER letters_pruned;
CREATE TRIGGER letters_pruned AFTER DELETE ON dead_letters
BEGIN
    UPDATE letter_tallies SET letters = letters - 1, pruned = pruned + (OLD.verdict IS NOT NULL)
    WHERE replay_id = coalesce(OLD.replay_id, 0) AND group_id = OLD.group_id AND standing = coalesce(OLD.verdict, OLD.state);
    DELETE FROM letter_facts WHERE letter_id = OLD.id;
    DELETE FROM replay_skips WHERE letter_id = OLD.id AND replay_id = OLD.replay_id;
    DELETE FROM receipts WHERE letter_id = OLD.id;
END;

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

CREATE TRIGGER traces_pruned AFTER DELETE ON jobs WHEN EXISTS (SELECT 1 FROM job_traces WHERE job_id = OLD.id)
BEGIN
    DELETE FROM job_traces WHERE job_id = OLD.id;
END;

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
CREATE INDEX jobs_ready ON jobs (lane_id, lane_key, priority, run_at, id) WHERE status = 'queued';

CREATE INDEX jobs_of_owner ON jobs (owner, id) WHERE owner IS NOT NULL;
