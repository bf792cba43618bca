-- SPDX-License-Identifier: Apache-2.0
-- The schema of the embedded store. The constraints are the invariants: a lease only while processing, a result only when complete,
-- an error only when failed, exactly one open dead letter for a failed job.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE lanes (
    id INTEGER PRIMARY KEY,
    pipeline TEXT NOT NULL,
    stage TEXT NOT NULL,
    position INTEGER NOT NULL,
    UNIQUE (pipeline, stage)
) STRICT;

CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    started_at REAL NOT NULL,
    expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE breakers (
    name TEXT PRIMARY KEY,
    state BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    lane_id INTEGER NOT NULL REFERENCES lanes (id),
    status TEXT NOT NULL,
    priority INTEGER NOT NULL,
    run_at REAL NOT NULL,
    key TEXT,
    owner TEXT,
    payload BLOB NOT NULL,
    input BLOB,                      -- of the present stage; NULL while that is the payload itself
    result BLOB,
    lease_token INTEGER,
    worker_id TEXT,
    dispatch INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 1,
    round INTEGER NOT NULL DEFAULT 1,
    snoozes INTEGER NOT NULL DEFAULT 0,
    suspect_count INTEGER NOT NULL DEFAULT 0,
    codes BLOB,
    waiting TEXT,                    -- why it is queued again: retry, hold
    error_code TEXT,
    error_message TEXT,
    created_at REAL NOT NULL,
    started_at REAL,
    last_attempt_at REAL,
    finished_at REAL,
    CHECK (status IN ('queued', 'processing', 'complete', 'failed', 'cancelled')),
    CHECK (priority BETWEEN 0 AND 9),
    CHECK ((status = 'processing') = (lease_token IS NOT NULL)),
    CHECK ((status = 'processing') = (worker_id IS NOT NULL)),
    CHECK ((status = 'complete') = (result IS NOT NULL)),
    CHECK ((status = 'failed') = (error_code IS NOT NULL)),
    CHECK ((status IN ('complete', 'failed', 'cancelled')) = (finished_at IS NOT NULL))
) STRICT;

CREATE INDEX jobs_ready ON jobs (lane_id, priority, run_at, id) WHERE status = 'queued';
CREATE INDEX jobs_leased ON jobs (worker_id) WHERE status = 'processing';
CREATE UNIQUE INDEX jobs_key ON jobs (pipeline, key) WHERE key IS NOT NULL AND status IN ('queued', 'processing', 'complete');

CREATE TABLE attempts (
    job_id INTEGER NOT NULL REFERENCES jobs (id),
    dispatch INTEGER NOT NULL,
    lane_id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker_id TEXT NOT NULL,
    started_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('ok', 'retry', 'hold', 'dead', 'crashed', 'cancelled')),
    burned INTEGER NOT NULL CHECK (burned IN (0, 1)),
    code TEXT,
    message TEXT,
    http_status INTEGER,
    reason TEXT,
    sentence TEXT,
    PRIMARY KEY (job_id, dispatch)
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL REFERENCES jobs (id),
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
CREATE INDEX dead_letters_group ON dead_letters (fingerprint, id);
