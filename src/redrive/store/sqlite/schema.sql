-- SPDX-License-Identifier: Apache-2.0
-- The current schema of the embedded store: what an empty database gets. An older database gets there by the files migration_N.sql; a
-- test compares the two. The constraints are the invariants: a lease only while processing, a result only when complete, an error only
-- when failed, exactly one live dead letter for a failed job. Rows that are written for every job have no foreign keys: they are written
-- in the same transaction as their job, and only pruning deletes them, all of a job at once. Indexes, and most views, stand in
-- statements/schema.sql, for both databases.

PRAGMA application_id = 1919185526;   -- "rdrv": marks the file as ours

CREATE TABLE lanes (
    id INTEGER PRIMARY KEY,
    pipeline TEXT NOT NULL,
    stage TEXT NOT NULL,
    position INTEGER NOT NULL,
    paused_at REAL,
    keyed_by TEXT,                   -- what the keys of its jobs are for; NULL for a lane without keys
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

-- Limits that all workers share, by name and key; changed by compare-and-swap.
CREATE TABLE limits (
    name TEXT NOT NULL,
    key TEXT NOT NULL,               -- empty for a limit without keys
    state BLOB NOT NULL,
    at REAL NOT NULL,                -- when it was last changed; keys that were not for long are removed
    PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    status TEXT NOT NULL,
    options BLOB NOT NULL,
    reason TEXT,                     -- why it was stopped, as JSON (core/stop_reason.py)
    items INTEGER NOT NULL DEFAULT 0,                             -- how many were submitted
    is_fed INTEGER NOT NULL DEFAULT 0 CHECK (is_fed IN (0, 1)),   -- the source has no more items
    created_at REAL NOT NULL,
    ended_at REAL,                   -- when all its items had ended, or it was paused; NULL again while an item is replayed
    key TEXT,
    label TEXT,                      -- what people call it
    owner TEXT,
    children INTEGER NOT NULL DEFAULT 0,                          -- how many jobs of its stages joined it
    driven_until REAL NOT NULL DEFAULT 0,                         -- until then the process that feeds it decides its status
    CHECK (status IN ('running', 'completed', 'partial_success', 'failed', 'aborted', 'paused', 'cancelled'))
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
    ordinal INTEGER,                 -- the position of the item in its run's source
    parent_id INTEGER,               -- the job whose stage submitted this one
    expires_at REAL,
    payload BLOB,                    -- NULL when it is large: then it is in job_values, dispatch 0
    input BLOB,                      -- of the current stage; NULL while that is the payload, or when it is large
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
    restarts INTEGER NOT NULL DEFAULT 0,     -- how often it started again at its first stage
    cancel_asked INTEGER NOT NULL DEFAULT 0 CHECK (cancel_asked IN (0, 1)),
    codes BLOB,
    waiting TEXT,                    -- why it is queued again: retry, hold, crashed, paused, replay
    progress TEXT,
    error_code TEXT,
    error_message TEXT,
    created_at REAL NOT NULL,
    started_at REAL,
    last_attempt_at REAL,
    finished_at REAL,
    erased_at REAL,                  -- when its values were erased
    lane_key TEXT,                   -- in a lane with keys: the keys of its limits and breaker, once a worker has found them
    origin TEXT,                     -- of an imported job: its installation and id there, which its idempotency keys keep
    CHECK (priority BETWEEN 0 AND 9),
    CHECK ((run_id IS NULL) = (ordinal IS NULL)),
    -- One expression instead of one per rule: it is evaluated whenever a job changes.
    CHECK (CASE status
        WHEN 'processing' THEN lease_token IS NOT NULL AND worker_id IS NOT NULL
            AND coalesce(finished_at, error_code, result, result_from) IS NULL
        WHEN 'queued' THEN coalesce(lease_token, worker_id, finished_at, error_code, result, result_from) IS NULL
        WHEN 'complete' THEN finished_at IS NOT NULL AND coalesce(lease_token, worker_id, error_code) IS NULL
            AND coalesce(result, result_from, erased_at) IS NOT NULL
        WHEN 'failed' THEN finished_at IS NOT NULL AND error_code IS NOT NULL
            AND coalesce(lease_token, worker_id, result, result_from) IS NULL
        WHEN 'skipped' THEN finished_at IS NOT NULL
            AND coalesce(lease_token, worker_id, error_code, result, result_from) IS NULL
        WHEN 'cancelled' THEN finished_at IS NOT NULL
            AND coalesce(lease_token, worker_id, error_code, result, result_from) IS NULL
        ELSE 0 END)
) STRICT;

-- Values too large to be rewritten with every change of their job; written once.
CREATE TABLE job_values (
    job_id INTEGER NOT NULL,
    dispatch INTEGER NOT NULL,       -- the dispatch whose output it is; 0 for the payload
    value BLOB NOT NULL,
    PRIMARY KEY (job_id, dispatch)
) STRICT, WITHOUT ROWID;

-- Where a job was submitted, for spans of its attempts; only for jobs whose submitter was traced.
CREATE TABLE job_traces (
    job_id INTEGER PRIMARY KEY,
    traceparent TEXT NOT NULL        -- as W3C Trace Context has it
) STRICT;

CREATE TRIGGER traces_pruned AFTER DELETE ON jobs WHEN EXISTS (SELECT 1 FROM job_traces WHERE job_id = OLD.id)
BEGIN
    DELETE FROM job_traces WHERE job_id = OLD.id;
END;

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
    -- Written with OR, because SQLite builds the list of an IN in a CHECK again for every row.
    outcome TEXT NOT NULL CHECK (outcome = 'ok' OR outcome = 'retry' OR outcome = 'hold' OR outcome = 'dead' OR outcome = 'crashed'
        OR outcome = 'cancelled' OR outcome = 'skipped'),
    burned INTEGER NOT NULL CHECK (burned = 0 OR burned = 1),
    code TEXT,
    exception TEXT,
    message TEXT,
    http_status INTEGER,
    decision TEXT,                   -- what was decided, or how it ended, as JSON (core/decide.py: Recorded); NULL when it just succeeded
    notes TEXT
) STRICT;

-- A group is all dead letters of one fingerprint; it has one row here for each lane in which it occurs. A filter by pipeline, stage,
-- code or category is resolved here, among few rows, and never among the letters themselves.
CREATE TABLE letter_groups (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    lane_id INTEGER NOT NULL,
    code TEXT NOT NULL,
    category TEXT NOT NULL,
    exception TEXT NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    first_letter INTEGER,            -- the id of its first letter; NULL only inside the transaction that makes both
    UNIQUE (fingerprint, lane_id)
) STRICT;

-- One letter per round that failed. Letters change by the thousand, and inside triggers, where SQLite builds the list of an IN again
-- each time: that is why conditions are written with OR here. A letter is live while it is neither replaying nor ended (`outcome IS NULL
-- AND state <> 'replaying'`): open, triaged, ready or discarded.
CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL,
    lane_id INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state = 'open' OR state = 'replaying' OR state = 'resolved' OR state = 'returned' OR state = 'ready'
        OR state = 'triaged' OR state = 'discarded'),
    replay_id INTEGER,             -- the replay that has marked or released it
    outcome TEXT CHECK (outcome = 'completed' OR outcome = 'same' OR outcome = 'other' OR outcome = 'cancelled'),   -- of its replay
    is_escalated INTEGER NOT NULL DEFAULT 0 CHECK (is_escalated IN (0, 1)),
    follows INTEGER,                 -- the letter of the previous round
    owner TEXT,                      -- the job's
    key TEXT,                        -- the job's
    first_failure_at REAL NOT NULL,
    last_failure_at REAL NOT NULL,
    diagnosis TEXT CHECK (diagnosis = 'transient' OR diagnosis = 'data' OR diagnosis = 'auth_config' OR diagnosis = 'code_defect'),
    assignee TEXT,                   -- who is responsible for it
    is_safe INTEGER NOT NULL DEFAULT 0 CHECK (is_safe IN (0, 1)),   -- somebody confirmed that a replay does no harm
    evidence TEXT,                   -- what was done about the cause
    closed_at REAL,
    counted INTEGER NOT NULL DEFAULT 0,   -- raised by statements that update the counters themselves, so that the trigger does not
    moved INTEGER NOT NULL DEFAULT 0,     -- the number of the last act (letter_moves) that changed its state
    freed INTEGER NOT NULL DEFAULT 0,     -- the number of the last act that made it free for a replay again
    run_id INTEGER,                       -- the job's
    CHECK ((state = 'resolved' OR state = 'returned') = (outcome IS NOT NULL) AND (outcome IS NULL) = (closed_at IS NULL)),
    CHECK (state <> 'ready' OR (evidence IS NOT NULL AND is_safe = 1)),
    CHECK (state <> 'discarded' OR replay_id IS NULL)
) STRICT;

-- Acts that change letters are numbered, so that a set that was frozen before an act can leave out letters that only match since then.
CREATE TABLE letter_moves (
    last INTEGER NOT NULL
) STRICT;

INSERT INTO letter_moves (last) VALUES (0);

-- How it failed: long and never changed, so it is kept apart from the letter, and changing a letter stays cheap.
CREATE TABLE letter_facts (
    letter_id INTEGER PRIMARY KEY,
    code TEXT NOT NULL,
    category TEXT NOT NULL,
    is_retryable INTEGER NOT NULL,
    exception TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    context BLOB NOT NULL,
    stack TEXT NOT NULL
) STRICT;

-- How many letters of a group are in which state, and marked by which replay; 0 stands for none. One table for both, because a letter
-- that is replayed changes three times, and every change is counted.
CREATE TABLE letter_tallies (
    replay_id INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    standing TEXT NOT NULL,          -- the outcome of its replay, or else its state
    letters INTEGER NOT NULL,
    pruned INTEGER NOT NULL DEFAULT 0,   -- letters that ended in a replay stay counted for it
    PRIMARY KEY (replay_id, group_id, standing)
) STRICT, WITHOUT ROWID;

CREATE VIEW letters_by_group AS
SELECT group_id, CASE WHEN standing = 'completed' OR standing = 'cancelled' THEN 'resolved' WHEN standing = 'same' OR standing = 'other'
    THEN 'returned' ELSE standing END AS state,
    replay_id <> 0 AND standing IN ('open', 'triaged', 'ready') AS is_taken, letters
FROM letter_tallies;

-- How many letters of a group came in each hour since the epoch.
CREATE TABLE letter_trend (
    group_id INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    letters INTEGER NOT NULL,
    PRIMARY KEY (group_id, hour)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER letters_added AFTER INSERT ON dead_letters
BEGIN
    INSERT INTO letter_tallies (replay_id, group_id, standing, letters) VALUES (0, NEW.group_id, NEW.state, 1)
    ON CONFLICT DO UPDATE SET letters = letters + 1;
    INSERT INTO letter_trend (group_id, hour, letters) VALUES (NEW.group_id, CAST(NEW.last_failure_at / 3600 AS INTEGER), 1)
    ON CONFLICT DO UPDATE SET letters = letters + 1;
    UPDATE letter_groups SET first_letter = NEW.id WHERE id = NEW.group_id AND first_letter IS NULL;
END;

CREATE TRIGGER letters_moved AFTER UPDATE OF state, replay_id, outcome ON dead_letters WHEN NEW.counted = OLD.counted
BEGIN
    INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
    VALUES (coalesce(OLD.replay_id, 0), OLD.group_id, coalesce(OLD.outcome, OLD.state), -1),
        (coalesce(NEW.replay_id, 0), NEW.group_id, coalesce(NEW.outcome, NEW.state), 1)
    ON CONFLICT DO UPDATE SET letters = letters + excluded.letters;
END;

CREATE TRIGGER letters_pruned AFTER DELETE ON dead_letters
BEGIN
    UPDATE letter_tallies SET letters = letters - 1, pruned = pruned + (OLD.outcome IS NOT NULL)
    WHERE replay_id = coalesce(OLD.replay_id, 0) AND group_id = OLD.group_id AND standing = coalesce(OLD.outcome, OLD.state);
    DELETE FROM letter_facts WHERE letter_id = OLD.id;
    DELETE FROM replay_skips WHERE letter_id = OLD.id AND replay_id = OLD.replay_id;
    DELETE FROM receipts WHERE letter_id = OLD.id;
END;

-- The end of a replayed job closes its letter, whatever ended the job. A new letter of a later round returns the replayed one; any other
-- end resolves it. The trigger on jobs looks for a letter first, because an UPDATE opens every index of its table even without a match.
CREATE TRIGGER letters_followed AFTER INSERT ON dead_letters WHEN NEW.round > 1
BEGIN
    UPDATE dead_letters SET state = 'returned', closed_at = NEW.last_failure_at,
        outcome = CASE group_id WHEN NEW.group_id THEN 'same' ELSE 'other' END
    WHERE job_id = NEW.job_id AND state = 'replaying';
END;

CREATE TRIGGER jobs_replayed AFTER UPDATE OF finished_at ON jobs
WHEN NEW.round > 1 AND NEW.finished_at IS NOT NULL AND NEW.status <> 'failed'
    AND EXISTS (SELECT 1 FROM dead_letters WHERE job_id = NEW.id AND state = 'replaying')
BEGIN
    UPDATE dead_letters SET state = 'resolved', outcome = CASE NEW.status WHEN 'cancelled' THEN 'cancelled' ELSE 'completed' END,
        closed_at = NEW.finished_at
    WHERE job_id = NEW.id AND state = 'replaying';
END;

-- Replays of many letters. A letter is marked by at most one replay that has not ended, and released once.
CREATE TABLE replays (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('marking', 'running', 'paused', 'stopped', 'cancelling', 'cancelled', 'done')),
    filter BLOB NOT NULL,         -- which letters, as JSON
    options BLOB NOT NULL,           -- canary, rate, where to start, as JSON
    cutoff INTEGER NOT NULL,         -- the last letter that can belong to it
    moves INTEGER NOT NULL,          -- the last act (letter_moves) before it: letters that match only since a later act do not belong to it
    marked_to INTEGER NOT NULL,     -- the letters up to this one have been marked or passed over
    expected INTEGER NOT NULL,       -- how many letters were shown to the person who started it
    pardoned BLOB NOT NULL,          -- the failures that no longer count towards its limits since somebody resumed it, as JSON
    next_at REAL NOT NULL,           -- when the rate allows the next release
    reason TEXT,                     -- why it is paused, stopped or cancelled, as JSON (core/stop_reason.py)
    note TEXT,                       -- how it was resolved
    driver TEXT,                     -- the worker that drives it
    driven_until REAL NOT NULL,
    actor TEXT NOT NULL,
    created_at REAL NOT NULL,
    ended_at REAL,
    closed_at REAL,
    CHECK ((status IN ('cancelled', 'done')) = (ended_at IS NOT NULL)),
    CHECK (closed_at IS NULL OR ended_at IS NOT NULL)
) STRICT;

-- Letters that a replay skipped, and why.
CREATE TABLE replay_skips (
    replay_id INTEGER NOT NULL,
    letter_id INTEGER NOT NULL,
    kind TEXT NOT NULL,              -- the obstacle; which of the next three are set depends on it
    job_id INTEGER,                  -- the job that has its key
    stage TEXT,                      -- the stage that is gone, or that its value does not fit
    detail TEXT,
    at REAL NOT NULL,
    PRIMARY KEY (replay_id, letter_id)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER letters_discarded AFTER UPDATE OF state ON dead_letters WHEN NEW.state = 'discarded' AND OLD.replay_id IS NOT NULL
BEGIN
    INSERT INTO replay_skips (replay_id, letter_id, kind, at) VALUES (OLD.replay_id, NEW.id, 'discarded', NEW.last_failure_at);
END;

-- Edited values of failed jobs; the original stays in the job, and here. A replay uses the last edit of the part it starts with.
CREATE TABLE edits (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    letter_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    part TEXT NOT NULL CHECK (part IN ('payload', 'input')),
    before BLOB,                     -- NULL when the values of the job were erased
    after BLOB,
    at REAL NOT NULL,
    actor TEXT NOT NULL
) STRICT;

-- The replay rules of a pipeline's code, for commands that run without that code.
CREATE TABLE replay_rules (
    pipeline TEXT PRIMARY KEY,
    rules BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Letters that were imported, so that importing one twice adds it once; with its attempts at its origin, which are shown but not counted.
CREATE TABLE imports (
    origin TEXT NOT NULL,
    letter INTEGER NOT NULL,         -- its id at its origin
    job_id INTEGER NOT NULL,
    at REAL NOT NULL,                -- when it was imported
    actor TEXT NOT NULL,
    job INTEGER NOT NULL,            -- the id of its job at its origin
    attempts TEXT NOT NULL,          -- its attempts at its origin, redacted, as JSON
    PRIMARY KEY (origin, letter)
) STRICT, WITHOUT ROWID;

-- The ids of this database, for others: a copy that is made to be restored gets one of its own, the last one here, for what is new in it.
CREATE TABLE installations (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    first_job INTEGER NOT NULL,      -- what was there before is the one's before it
    first_letter INTEGER NOT NULL,
    secret BLOB NOT NULL,            -- the key of hashes of values; never exported
    file INTEGER                     -- the number of its file; another one is a copy
) STRICT;

INSERT INTO installations (id, first_job, first_letter, secret) VALUES (lower(hex(randomblob(8))), 0, 0, randomblob(32));

-- Which lanes have which breaker, and who receives changes in a pipeline: known from its code, recorded when a worker starts, for
-- changes that are made without that code.
CREATE TABLE lane_breakers (
    breaker TEXT NOT NULL,
    lane_id INTEGER NOT NULL,
    PRIMARY KEY (breaker, lane_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE listeners (
    topic TEXT NOT NULL CHECK (topic IN ('letters', 'breakers', 'runs')),
    pipeline TEXT NOT NULL,
    recipient TEXT NOT NULL,         -- `hook`, or the name of a sink
    PRIMARY KEY (topic, pipeline, recipient)
) STRICT, WITHOUT ROWID;

-- Notices not yet delivered to hooks and sinks; written in the transaction of what they are about: an attempt, a change of a letter, a
-- change of a breaker, or the end of a run.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    lane_id INTEGER NOT NULL,
    job_id INTEGER,                  -- NULL for a change of a breaker or the end of a run
    dispatch INTEGER,                -- of the attempt, or of the last one before the letter
    letter_id INTEGER,
    event TEXT,                      -- what happened to the letter
    state TEXT,                      -- the state of the letter since then
    change_id INTEGER,               -- the change of a breaker
    recipient TEXT NOT NULL,         -- `hook`, or the name of a sink
    at REAL NOT NULL,                -- when it happened
    due_at REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    run_id INTEGER                   -- the run that ended
) STRICT;

-- What a sink answered when it received a letter, such as the place in a stream; of the last change that it answered.
CREATE TABLE receipts (
    letter_id INTEGER NOT NULL,
    sink TEXT NOT NULL,
    receipt TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (letter_id, sink)
) STRICT, WITHOUT ROWID;

-- A change of a letter has no time of its own: it is made after a line of the operator log, or by releasing or ending the letter's job.
CREATE TRIGGER letters_changed AFTER UPDATE OF state, diagnosis, evidence, assignee, is_escalated ON dead_letters
WHEN EXISTS (SELECT 1 FROM listeners WHERE topic = 'letters')
    AND (NEW.state <> OLD.state OR NEW.is_escalated <> OLD.is_escalated OR NEW.assignee IS NOT OLD.assignee
        OR NEW.diagnosis IS NOT OLD.diagnosis OR NEW.evidence IS NOT OLD.evidence)
BEGIN
    INSERT INTO outbox (lane_id, job_id, dispatch, letter_id, event, state, recipient, at, due_at)
    SELECT NEW.lane_id, NEW.job_id,
        coalesce((SELECT max(dispatch) FROM attempts WHERE job_id = NEW.job_id AND attempts.round = NEW.round), 0), NEW.id,
        CASE WHEN NEW.state = 'open' AND OLD.state <> 'open' THEN 'restored'
            WHEN NEW.assignee IS NOT OLD.assignee THEN 'assigned'
            WHEN NEW.is_escalated > OLD.is_escalated THEN 'escalated' ELSE NEW.state END,
        NEW.state, recipient, now, now
    FROM (SELECT CASE WHEN NEW.closed_at IS NOT NULL THEN NEW.closed_at
            WHEN NEW.state = 'replaying' AND OLD.state <> 'replaying' THEN (SELECT run_at FROM jobs WHERE jobs.id = NEW.job_id)
            ELSE coalesce((SELECT operations.at FROM operations ORDER BY operations.id DESC LIMIT 1), NEW.last_failure_at) END AS now)
        CROSS JOIN lanes ON lanes.id = NEW.lane_id
        CROSS JOIN listeners ON topic = 'letters' AND listeners.pipeline = lanes.pipeline;
END;

-- Every change of a breaker's phase, and what caused it; the last ones.
CREATE TABLE breaker_changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    breaker TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    cause TEXT NOT NULL CHECK (cause IN ('failures', 'probe', 'operator')),
    code TEXT,                       -- of the failure that caused it
    actor TEXT NOT NULL,             -- the worker that made it, or the operator
    reason TEXT                      -- the operator's
) STRICT;

-- The breaker of one key is named after it: `origin[example.org]`.
CREATE TRIGGER breakers_changed AFTER INSERT ON breaker_changes
BEGIN
    INSERT INTO outbox (lane_id, change_id, recipient, at, due_at)
    SELECT min(lane_id), NEW.id, recipient, NEW.at, NEW.at
    FROM lane_breakers CROSS JOIN lanes ON lanes.id = lane_id
        CROSS JOIN listeners ON topic = 'breakers' AND listeners.pipeline = lanes.pipeline
    WHERE breaker = NEW.breaker OR substr(NEW.breaker, 1, length(breaker) + 1) = breaker || '[' GROUP BY lanes.pipeline, recipient;
    DELETE FROM breaker_changes WHERE id <= NEW.id - 10000;
END;

CREATE TRIGGER runs_ended AFTER UPDATE OF ended_at ON runs
WHEN NEW.ended_at IS NOT NULL AND OLD.ended_at IS NULL AND NEW.status <> 'paused'
BEGIN
    INSERT INTO outbox (lane_id, run_id, recipient, at, due_at)
    SELECT min(lanes.id), NEW.id, recipient, NEW.ended_at, NEW.ended_at
    FROM lanes CROSS JOIN listeners ON topic = 'runs' AND listeners.pipeline = lanes.pipeline
    WHERE lanes.pipeline = NEW.pipeline GROUP BY recipient;
END;

-- Jobs that are submitted repeatedly, once per tick over all workers.
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

-- When to delete what ended long ago. One worker at a time does it, under a lease.
CREATE TABLE retentions (
    name TEXT PRIMARY KEY,
    ages BLOB NOT NULL,              -- how long each kind is kept, in seconds, as JSON
    cron TEXT NOT NULL,
    zone TEXT NOT NULL,
    next_at REAL NOT NULL,
    last_at REAL,
    deleted TEXT,                    -- how many of each kind the last tick deleted, as JSON
    driver TEXT,                     -- the worker that is deleting
    driven_until REAL NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The operator log: what people did, and why; and where a replay stopped itself. Rows are added and never changed.
CREATE TABLE operations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    verb TEXT NOT NULL,
    subject_kind TEXT NOT NULL,      -- letter, job, replay, file, ...
    subject_id TEXT NOT NULL,
    reason TEXT,
    letters INTEGER,                 -- how many letters it was about
    change TEXT                      -- before and after, redacted, as JSON
) STRICT;

-- Pruning leaves these rows, and they hold no value of a job that erasing would have to remove.
CREATE TRIGGER operations_unchanged BEFORE UPDATE ON operations
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is changed');
END;

CREATE TRIGGER operations_kept BEFORE DELETE ON operations
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is deleted');
END;

-- INSERT OR REPLACE deletes a row without firing its delete trigger.
CREATE TRIGGER operations_added BEFORE INSERT ON operations WHEN EXISTS (SELECT 1 FROM operations WHERE id = NEW.id)
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is replaced');
END;

-- How many jobs have ended, so that they need not be counted; run 0 stands for no run. Pruned jobs stay counted.
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
    -- Its status is decided again when all items have ended.
    UPDATE runs SET ended_at = NULL WHERE id = OLD.run_id AND status <> 'paused';
END;

CREATE TRIGGER jobs_pruned AFTER DELETE ON jobs WHEN OLD.finished_at IS NOT NULL
BEGIN
    UPDATE tallies SET pruned = pruned + 1
    WHERE run_id = coalesce(OLD.run_id, 0) AND lane_id = OLD.lane_id AND status = OLD.status;
END;

CREATE TRIGGER imports_pruned AFTER DELETE ON jobs WHEN EXISTS (SELECT 1 FROM imports WHERE job_id = OLD.id)
BEGIN
    UPDATE imports SET attempts = '[]' WHERE job_id = OLD.id;
END;

