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
CREATE INDEX jobs_of_key ON jobs (key, id) WHERE key IS NOT NULL AND status IN ('failed', 'cancelled', 'skipped');
CREATE INDEX jobs_children ON jobs (parent_id, id) WHERE parent_id IS NOT NULL;

ALTER TABLE runs ADD COLUMN key TEXT;
ALTER TABLE runs ADD COLUMN label TEXT;
ALTER TABLE runs ADD COLUMN owner TEXT;
ALTER TABLE runs ADD COLUMN children INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN driven_until REAL NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX runs_key ON runs (pipeline, key) WHERE key IS NOT NULL;
CREATE INDEX runs_live ON runs (id) WHERE ended_at IS NULL AND status <> 'paused';
ALTER TABLE outbox ADD COLUMN run_id INTEGER;
ALTER TABLE dead_letters ADD COLUMN run_id INTEGER;
UPDATE dead_letters SET run_id = (SELECT jobs.run_id FROM jobs WHERE jobs.id = job_id);
CREATE INDEX dead_letters_run ON dead_letters (run_id, last_failure_at, id) WHERE run_id IS NOT NULL;

CREATE TRIGGER runs_ended AFTER UPDATE OF ended_at ON runs
WHEN NEW.ended_at IS NOT NULL AND OLD.ended_at IS NULL AND NEW.status <> 'paused'
BEGIN
    INSERT INTO outbox (lane_id, run_id, recipient, at, due_at)
    SELECT min(lanes.id), NEW.id, recipient, NEW.ended_at, NEW.ended_at
    FROM lanes CROSS JOIN listeners ON topic = 'runs' AND listeners.pipeline = lanes.pipeline
    WHERE lanes.pipeline = NEW.pipeline GROUP BY recipient;
END;

DROP TRIGGER jobs_reopened;
CREATE TRIGGER jobs_reopened AFTER UPDATE OF finished_at ON jobs WHEN NEW.finished_at IS NULL AND OLD.finished_at IS NOT NULL
BEGIN
    UPDATE tallies SET jobs = jobs - 1
    WHERE run_id = coalesce(OLD.run_id, 0) AND lane_id = OLD.lane_id AND status = OLD.status;
    UPDATE runs SET ended_at = NULL WHERE id = OLD.run_id AND status <> 'paused';
END;

DROP TRIGGER breakers_changed;
CREATE TRIGGER breakers_changed AFTER INSERT ON breaker_changes
BEGIN
    INSERT INTO outbox (lane_id, change_id, recipient, at, due_at)
    SELECT min(lane_id), NEW.id, recipient, NEW.at, NEW.at
    FROM lane_breakers CROSS JOIN lanes ON lanes.id = lane_id
        CROSS JOIN listeners ON topic = 'breakers' AND listeners.pipeline = lanes.pipeline
    WHERE breaker = NEW.breaker OR substr(NEW.breaker, 1, length(breaker) + 1) = breaker || '[' GROUP BY lanes.pipeline, recipient;
    DELETE FROM breaker_changes WHERE id <= NEW.id - 10000;
END;

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
-- The values of a job, wherever they are: a small one is in its row, a large one in job_values. The input of the first stage is the payload.
-- Claiming and releasing have forms of their own, because they are done for every job: they only name large values, or read them with the
-- rows that they have changed.
CREATE VIEW values_of_jobs AS
SELECT id AS job_id,
    coalesce(payload, (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = 0)) AS payload,
    coalesce(input, CASE WHEN input_from = 0 THEN payload END,
        (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = input_from)) AS input,
    CASE WHEN result_from IS NULL THEN result
        ELSE (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = result_from) END AS result
FROM jobs;

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
CREATE INDEX operations_on ON operations (subject_kind, subject_id, id);

CREATE TRIGGER operations_unchanged BEFORE UPDATE ON operations
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is changed');
END;

CREATE TRIGGER operations_kept BEFORE DELETE ON operations
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is deleted');
END;

CREATE TRIGGER operations_added BEFORE INSERT ON operations WHEN EXISTS (SELECT 1 FROM operations WHERE id = NEW.id)
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is replaced');
END;
