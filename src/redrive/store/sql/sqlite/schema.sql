-- SPDX-License-Identifier: Apache-2.0
-- The schema of the embedded store. The constraints are the invariants: a lease only while processing, a result only when complete,
-- an error only when failed, exactly one open dead letter for a failed job. Rows that are written for every job carry no foreign keys:
-- they are written in the same transaction as the job they belong to, and only pruning deletes, all of a job at once.

CREATE TABLE lanes (
    id INTEGER PRIMARY KEY,
    pipeline TEXT NOT NULL,
    stage TEXT NOT NULL,
    position INTEGER NOT NULL,
    paused_at REAL,
    UNIQUE (pipeline, stage)
) STRICT;

CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    process INTEGER NOT NULL,
    pipelines TEXT NOT NULL,         -- a JSON list
    concurrency INTEGER NOT NULL,
    started_at REAL NOT NULL,
    expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE breakers (
    name TEXT PRIMARY KEY,
    state BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    status TEXT NOT NULL,
    options BLOB NOT NULL,
    reason TEXT,
    items INTEGER NOT NULL DEFAULT 0,                             -- how many were submitted
    is_fed INTEGER NOT NULL DEFAULT 0 CHECK (is_fed IN (0, 1)),   -- the source has given its last item
    created_at REAL NOT NULL,
    ended_at REAL,
    CHECK (status IN ('running', 'completed', 'partial_success', 'failed', 'aborted', 'paused'))
) STRICT;

CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    lane_id INTEGER NOT NULL,
    status TEXT NOT NULL,
    priority INTEGER NOT NULL,
    run_at REAL NOT NULL,
    key TEXT,
    owner TEXT,
    run_id INTEGER,
    ordinal INTEGER,                 -- the place of the item in its run's source
    parent_id INTEGER,               -- the job whose stage submitted this one
    expires_at REAL,
    payload BLOB,                    -- NULL when it is large: then it is job_values, dispatch 0
    input BLOB,                      -- of the present stage; NULL while that is the payload, or when it is large
    input_from INTEGER NOT NULL DEFAULT 0,   -- the dispatch whose output a large input is
    result BLOB,
    result_from INTEGER,             -- the dispatch whose output a large result is
    lease_token INTEGER,
    worker_id TEXT,
    dispatch INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 1,
    round INTEGER NOT NULL DEFAULT 1,
    snoozes INTEGER NOT NULL DEFAULT 0,
    suspect_count INTEGER NOT NULL DEFAULT 0,
    crash_count INTEGER NOT NULL DEFAULT 0,
    cancel_asked INTEGER NOT NULL DEFAULT 0 CHECK (cancel_asked IN (0, 1)),
    codes BLOB,
    waiting TEXT,                    -- why it is queued again: retry, hold, crashed, paused
    progress TEXT,
    error_code TEXT,
    error_message TEXT,
    created_at REAL NOT NULL,
    started_at REAL,
    last_attempt_at REAL,
    finished_at REAL,
    CHECK (priority BETWEEN 0 AND 9),
    CHECK ((run_id IS NULL) = (ordinal IS NULL)),
    -- One expression instead of one per rule: it is looked at whenever a job moves.
    CHECK (CASE status
        WHEN 'queued' THEN lease_token IS NULL AND worker_id IS NULL AND finished_at IS NULL AND error_code IS NULL
            AND result IS NULL AND result_from IS NULL
        WHEN 'processing' THEN lease_token IS NOT NULL AND worker_id IS NOT NULL AND finished_at IS NULL AND error_code IS NULL
            AND result IS NULL AND result_from IS NULL
        WHEN 'complete' THEN lease_token IS NULL AND worker_id IS NULL AND finished_at IS NOT NULL AND error_code IS NULL
            AND (result IS NOT NULL OR result_from IS NOT NULL)
        WHEN 'failed' THEN lease_token IS NULL AND worker_id IS NULL AND finished_at IS NOT NULL AND error_code IS NOT NULL
            AND result IS NULL AND result_from IS NULL
        WHEN 'cancelled' THEN lease_token IS NULL AND worker_id IS NULL AND finished_at IS NOT NULL AND error_code IS NULL
            AND result IS NULL AND result_from IS NULL
        ELSE 0 END)
) STRICT;

CREATE INDEX jobs_ready ON jobs (lane_id, priority, run_at, id) WHERE status = 'queued';
CREATE INDEX jobs_leased ON jobs (worker_id, lease_token) WHERE status = 'processing';
CREATE INDEX jobs_unwanted ON jobs (worker_id) WHERE status = 'processing' AND cancel_asked = 1;
CREATE INDEX jobs_failed ON jobs (id) WHERE status = 'failed';
CREATE UNIQUE INDEX jobs_key ON jobs (pipeline, key) WHERE key IS NOT NULL AND status IN ('queued', 'processing', 'complete');
CREATE UNIQUE INDEX jobs_of_run ON jobs (run_id, ordinal) WHERE run_id IS NOT NULL;

-- Values too large to be carried along with every change of their job; written once.
CREATE TABLE job_values (
    job_id INTEGER NOT NULL,
    dispatch INTEGER NOT NULL,       -- the one whose output it is; 0 for the payload
    value BLOB NOT NULL,
    PRIMARY KEY (job_id, dispatch)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    seq INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL,
    dispatch INTEGER NOT NULL,
    lane_id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker_id TEXT NOT NULL,
    config TEXT,                     -- a hash of the stage's settings at that time
    started_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('ok', 'retry', 'hold', 'dead', 'crashed', 'cancelled')),
    burned INTEGER NOT NULL CHECK (burned IN (0, 1)),
    code TEXT,
    message TEXT,
    http_status INTEGER,
    reason TEXT,
    sentence TEXT,
    notes TEXT
) STRICT;

CREATE UNIQUE INDEX attempts_of_job ON attempts (job_id, dispatch);

CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL,
    lane_id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'triaged', 'ready', 'replaying', 'resolved', 'discarded')),
    code TEXT NOT NULL,
    category TEXT NOT NULL,
    message TEXT NOT NULL,
    error_class TEXT NOT NULL,
    stack TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    context BLOB NOT NULL,
    reason TEXT NOT NULL,
    first_failure_at REAL NOT NULL,
    last_failure_at REAL NOT NULL
) STRICT;

CREATE UNIQUE INDEX dead_letters_live ON dead_letters (job_id) WHERE state NOT IN ('resolved', 'replaying');
CREATE INDEX dead_letters_of_job ON dead_letters (job_id);
CREATE INDEX dead_letters_group ON dead_letters (fingerprint, id);

-- What hooks still have to be told; written with the settlement it is about.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    lane_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    dispatch INTEGER NOT NULL,
    due_at REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX outbox_due ON outbox (lane_id, due_at);
CREATE INDEX outbox_of_job ON outbox (job_id);

-- Jobs submitted again and again, once per tick over all workers.
CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    lane_id INTEGER NOT NULL REFERENCES lanes (id),
    cron TEXT NOT NULL,
    zone TEXT NOT NULL,
    payload BLOB NOT NULL,
    priority INTEGER NOT NULL,
    next_at REAL NOT NULL,
    last_at REAL
) STRICT, WITHOUT ROWID;

-- What people did, and why.
CREATE TABLE operations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    verb TEXT NOT NULL,
    subject TEXT NOT NULL,
    reason TEXT
) STRICT;

-- How many jobs have ended, so that nobody has to count them; 0 stands for no run. What was pruned stays counted.
CREATE TABLE tallies (
    run_id INTEGER NOT NULL,
    lane_id INTEGER NOT NULL,
    status TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    pruned INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, lane_id, status)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER jobs_finished AFTER UPDATE OF finished_at ON jobs WHEN NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL
BEGIN
    INSERT INTO tallies (run_id, lane_id, status, jobs) VALUES (coalesce(NEW.run_id, 0), NEW.lane_id, NEW.status, 1)
    ON CONFLICT DO UPDATE SET jobs = jobs + 1;
END;

CREATE TRIGGER jobs_reopened AFTER UPDATE OF finished_at ON jobs WHEN NEW.finished_at IS NULL AND OLD.finished_at IS NOT NULL
BEGIN
    UPDATE tallies SET jobs = jobs - 1
    WHERE run_id = coalesce(OLD.run_id, 0) AND lane_id = OLD.lane_id AND status = OLD.status;
END;

CREATE TRIGGER jobs_pruned AFTER DELETE ON jobs WHEN OLD.finished_at IS NOT NULL
BEGIN
    UPDATE tallies SET pruned = pruned + 1
    WHERE run_id = coalesce(OLD.run_id, 0) AND lane_id = OLD.lane_id AND status = OLD.status;
END;

-- Every arrow a job has gone along, as one list: nothing of it is stored twice.
CREATE VIEW events AS
SELECT created_at AS at, id AS job_id, 0 AS dispatch, 0 AS part, 'queued' AS event, pipeline, NULL AS stage, NULL AS attempt,
    NULL AS code, NULL AS http_status, NULL AS duration_ms, NULL AS reason
FROM jobs
UNION ALL
SELECT started_at, job_id, dispatch, 1, 'processing', lanes.pipeline, lanes.stage, attempt, NULL, NULL, NULL, NULL
FROM attempts JOIN lanes ON lanes.id = lane_id
UNION ALL
SELECT last_attempt_at, jobs.id, dispatch, 1, 'processing', lanes.pipeline, lanes.stage, attempt, NULL, NULL, NULL, NULL
FROM jobs JOIN lanes ON lanes.id = lane_id WHERE status = 'processing'
UNION ALL
SELECT ended_at, job_id, attempts.dispatch, 2,
    CASE outcome WHEN 'dead' THEN 'failed'
        WHEN 'ok' THEN CASE WHEN jobs.status = 'complete' AND jobs.dispatch = attempts.dispatch THEN 'complete' ELSE 'checkpoint' END
        ELSE outcome END,
    lanes.pipeline, lanes.stage, attempts.attempt, code, http_status, (ended_at - attempts.started_at) * 1000, reason
FROM attempts JOIN jobs ON jobs.id = job_id JOIN lanes ON lanes.id = attempts.lane_id
UNION ALL
SELECT finished_at, id, dispatch, 3, 'cancelled', pipeline, NULL, attempt, NULL, NULL, NULL, NULL
FROM jobs WHERE status = 'cancelled' AND NOT EXISTS (
    SELECT 1 FROM attempts WHERE job_id = jobs.id AND attempts.dispatch = jobs.dispatch AND outcome = 'cancelled');
