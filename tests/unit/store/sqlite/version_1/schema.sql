-- SPDX-License-Identifier: Apache-2.0
-- The schema of the embedded store. The constraints are the invariants: a lease only while processing, a result only when complete,
-- an error only when failed, exactly one open dead letter for a failed job. Rows that are written for every job carry no foreign keys:
-- they are written in the same transaction as the job they belong to, and only pruning deletes, all of a job at once.

PRAGMA application_id = 1919185526;   -- "rdrv": whose file it is

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
    restarts INTEGER NOT NULL DEFAULT 0,     -- how often it began anew at its first stage
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
    erased_at REAL,                  -- its values were wiped
    CHECK (priority BETWEEN 0 AND 9),
    CHECK ((run_id IS NULL) = (ordinal IS NULL)),
    -- One expression instead of one per rule: it is looked at whenever a job moves.
    CHECK (CASE status
        WHEN 'processing' THEN lease_token IS NOT NULL AND worker_id IS NOT NULL
            AND coalesce(finished_at, error_code, result, result_from) IS NULL
        WHEN 'queued' THEN coalesce(lease_token, worker_id, finished_at, error_code, result, result_from) IS NULL
        WHEN 'complete' THEN finished_at IS NOT NULL AND coalesce(lease_token, worker_id, error_code) IS NULL
            AND coalesce(result, result_from, erased_at) IS NOT NULL
        WHEN 'failed' THEN finished_at IS NOT NULL AND error_code IS NOT NULL
            AND coalesce(lease_token, worker_id, result, result_from) IS NULL
        WHEN 'cancelled' THEN finished_at IS NOT NULL
            AND coalesce(lease_token, worker_id, error_code, result, result_from) IS NULL
        ELSE 0 END)
) STRICT;

CREATE INDEX jobs_ready ON jobs (lane_id, priority, run_at, id) WHERE status = 'queued';
-- Of the token alone: a worker's name would be compared with others again and again, and what is leased are few.
CREATE INDEX jobs_leased ON jobs (lease_token) WHERE status = 'processing';
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
    -- Spelled out, because the list of an IN in a CHECK is built anew for every row.
    outcome TEXT NOT NULL CHECK (outcome = 'ok' OR outcome = 'retry' OR outcome = 'hold' OR outcome = 'dead' OR outcome = 'crashed'
        OR outcome = 'cancelled'),
    burned INTEGER NOT NULL CHECK (burned = 0 OR burned = 1),
    code TEXT,
    error_class TEXT,
    message TEXT,
    http_status INTEGER,
    reason TEXT,
    sentence TEXT,
    notes TEXT
) STRICT;

CREATE UNIQUE INDEX attempts_of_job ON attempts (job_id, dispatch);

-- A group is all dead letters of one fingerprint; here it has a row for each lane in which that occurs. Which letters a filter by
-- pipeline, stage, code or category means is found here, among few rows, and never among the letters themselves.
CREATE TABLE letter_groups (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    lane_id INTEGER NOT NULL,
    code TEXT NOT NULL,
    category TEXT NOT NULL,
    error_class TEXT NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    first_letter INTEGER,            -- the id of its first one; NULL only inside the transaction that makes both
    UNIQUE (fingerprint, lane_id)
) STRICT;

-- One letter per round that failed. Letters move by the thousand, and inside triggers, where SQLite builds the list of an IN anew each
-- time: that is why conditions are spelled out here. A letter is live while it is neither replaying nor ended (`verdict IS NULL AND
-- state <> 'replaying'`): open, triaged, ready or discarded.
CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL,
    lane_id INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state = 'open' OR state = 'replaying' OR state = 'resolved' OR state = 'returned' OR state = 'ready'
        OR state = 'triaged' OR state = 'discarded'),
    campaign_id INTEGER,             -- the campaign that took it, or is about to
    verdict TEXT CHECK (verdict = 'completed' OR verdict = 'same' OR verdict = 'other' OR verdict = 'cancelled'),   -- of its replay
    is_escalated INTEGER NOT NULL DEFAULT 0 CHECK (is_escalated IN (0, 1)),
    follows INTEGER,                 -- the letter of the round before
    owner TEXT,                      -- the job's
    key TEXT,                        -- the job's
    first_failure_at REAL NOT NULL,
    last_failure_at REAL NOT NULL,
    diagnosis TEXT CHECK (diagnosis = 'transient' OR diagnosis = 'data' OR diagnosis = 'auth_config' OR diagnosis = 'code_defect'),
    assignee TEXT,                   -- who looks after it
    is_safe INTEGER NOT NULL DEFAULT 0 CHECK (is_safe IN (0, 1)),   -- somebody confirmed that a replay does no harm
    evidence TEXT,                   -- what was done about the cause
    closed_at REAL,
    counted INTEGER NOT NULL DEFAULT 0,   -- goes up with a move that its statement counts itself, many letters at once
    moved INTEGER NOT NULL DEFAULT 0,     -- the number of the act that put it where it is
    freed INTEGER NOT NULL DEFAULT 0,     -- the number of the act after which it could be replayed again
    CHECK ((state = 'resolved' OR state = 'returned') = (verdict IS NOT NULL) AND (verdict IS NULL) = (closed_at IS NULL)),
    CHECK (state <> 'ready' OR (evidence IS NOT NULL AND is_safe = 1)),
    CHECK (state <> 'discarded' OR campaign_id IS NULL)
) STRICT;

-- The acts that moved letters have numbers, so that a set that was frozen before an act can leave out what the act brought into it.
CREATE TABLE letter_moves (
    last INTEGER NOT NULL
) STRICT;

INSERT INTO letter_moves (last) VALUES (0);

-- How it failed: what is long and never changes stands beside the letter, so that moving a letter stays cheap.
CREATE TABLE letter_facts (
    letter_id INTEGER PRIMARY KEY,
    code TEXT NOT NULL,
    category TEXT NOT NULL,
    is_retryable INTEGER NOT NULL,
    error_class TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    context BLOB NOT NULL,
    stack TEXT NOT NULL
) STRICT;

-- A letter as it is read: with how it failed, and the fingerprint of its group.
CREATE VIEW letters AS
SELECT letter.id, letter.job_id, letter.lane_id, letter.group_id, letter.round, letter.state, letter.campaign_id, letter.verdict,
    letter.is_escalated, letter.follows, letter.owner, letter.key, letter.first_failure_at, letter.last_failure_at, letter.diagnosis,
    letter.assignee, letter.is_safe, letter.evidence, letter.closed_at, letter.moved, facts.code, facts.category, facts.is_retryable,
    facts.error_class, letter_groups.fingerprint, facts.reason, facts.message, facts.context, facts.stack
FROM dead_letters letter CROSS JOIN letter_facts facts ON facts.letter_id = letter.id
    CROSS JOIN letter_groups ON letter_groups.id = letter.group_id;

CREATE UNIQUE INDEX dead_letters_live ON dead_letters (job_id) WHERE verdict IS NULL AND state <> 'replaying';
CREATE INDEX dead_letters_of_job ON dead_letters (job_id);
CREATE INDEX dead_letters_group ON dead_letters (group_id, state, last_failure_at, id);
CREATE INDEX dead_letters_time ON dead_letters (last_failure_at, id);
CREATE INDEX dead_letters_owner ON dead_letters (owner, last_failure_at, id) WHERE owner IS NOT NULL;
CREATE INDEX dead_letters_key ON dead_letters (key, last_failure_at, id) WHERE key IS NOT NULL;
CREATE INDEX dead_letters_taken ON dead_letters (campaign_id, id)
WHERE campaign_id IS NOT NULL AND verdict IS NULL AND state <> 'replaying';
CREATE INDEX dead_letters_campaign ON dead_letters (campaign_id, id) WHERE campaign_id IS NOT NULL;
CREATE INDEX dead_letters_follows ON dead_letters (follows) WHERE follows IS NOT NULL;

-- How many letters of a group are where, and in the hands of which campaign; 0 stands for none. One table for both, because a letter
-- that is replayed moves three times, and every move is counted.
CREATE TABLE letter_tallies (
    campaign_id INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    standing TEXT NOT NULL,          -- the verdict of its replay, or else its state
    letters INTEGER NOT NULL,
    pruned INTEGER NOT NULL DEFAULT 0,   -- those that ended in a campaign stay counted for it
    PRIMARY KEY (campaign_id, group_id, standing)
) STRICT, WITHOUT ROWID;

CREATE VIEW letters_by_group AS
SELECT group_id, CASE WHEN standing = 'completed' OR standing = 'cancelled' THEN 'resolved' WHEN standing = 'same' OR standing = 'other'
    THEN 'returned' ELSE standing END AS state,
    campaign_id <> 0 AND standing IN ('open', 'triaged', 'ready') AS is_taken, letters
FROM letter_tallies;

CREATE VIEW letters_by_campaign AS
SELECT campaign_id, CASE WHEN standing IN ('open', 'triaged', 'ready') THEN 'waiting' ELSE standing END AS standing,
    sum(letters + pruned) AS letters
FROM letter_tallies WHERE campaign_id <> 0 GROUP BY 1, 2;

-- How many letters of a group came in each hour since the epoch.
CREATE TABLE letter_trend (
    group_id INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    letters INTEGER NOT NULL,
    PRIMARY KEY (group_id, hour)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER letters_added AFTER INSERT ON dead_letters
BEGIN
    INSERT INTO letter_tallies (campaign_id, group_id, standing, letters) VALUES (0, NEW.group_id, NEW.state, 1)
    ON CONFLICT DO UPDATE SET letters = letters + 1;
    INSERT INTO letter_trend (group_id, hour, letters) VALUES (NEW.group_id, CAST(NEW.last_failure_at / 3600 AS INTEGER), 1)
    ON CONFLICT DO UPDATE SET letters = letters + 1;
    UPDATE letter_groups SET first_letter = NEW.id WHERE id = NEW.group_id AND first_letter IS NULL;
END;

CREATE TRIGGER letters_moved AFTER UPDATE OF state, campaign_id, verdict ON dead_letters WHEN NEW.counted = OLD.counted
BEGIN
    INSERT INTO letter_tallies (campaign_id, group_id, standing, letters)
    VALUES (coalesce(OLD.campaign_id, 0), OLD.group_id, coalesce(OLD.verdict, OLD.state), -1),
        (coalesce(NEW.campaign_id, 0), NEW.group_id, coalesce(NEW.verdict, NEW.state), 1)
    ON CONFLICT DO UPDATE SET letters = letters + excluded.letters;
END;

CREATE TRIGGER letters_pruned AFTER DELETE ON dead_letters
BEGIN
    UPDATE letter_tallies SET letters = letters - 1, pruned = pruned + (OLD.verdict IS NOT NULL)
    WHERE campaign_id = coalesce(OLD.campaign_id, 0) AND group_id = OLD.group_id AND standing = coalesce(OLD.verdict, OLD.state);
    DELETE FROM letter_facts WHERE letter_id = OLD.id;
    DELETE FROM campaign_skips WHERE letter_id = OLD.id AND campaign_id = OLD.campaign_id;
END;

-- The end of a replay closes its letter, however it ends: by construction, since nothing else may end a job without being seen here.
-- Looked for first, because a change opens every index of its table, whether it finds a row or not.
CREATE TRIGGER letters_followed AFTER INSERT ON dead_letters WHEN NEW.round > 1
BEGIN
    UPDATE dead_letters SET state = 'returned', closed_at = NEW.last_failure_at,
        verdict = CASE group_id WHEN NEW.group_id THEN 'same' ELSE 'other' END
    WHERE job_id = NEW.job_id AND state = 'replaying';
END;

CREATE TRIGGER jobs_replayed AFTER UPDATE OF finished_at ON jobs
WHEN NEW.round > 1 AND NEW.finished_at IS NOT NULL AND NEW.status <> 'failed'
    AND EXISTS (SELECT 1 FROM dead_letters WHERE job_id = NEW.id AND state = 'replaying')
BEGIN
    UPDATE dead_letters SET state = 'resolved', verdict = CASE NEW.status WHEN 'complete' THEN 'completed' ELSE 'cancelled' END,
        closed_at = NEW.finished_at
    WHERE job_id = NEW.id AND state = 'replaying';
END;

-- Replays of many letters under one head. A letter is taken by one campaign that has not ended, and released once.
CREATE TABLE campaigns (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('stamping', 'running', 'paused', 'stopped', 'cancelling', 'cancelled', 'done')),
    selection BLOB NOT NULL,         -- which letters, as JSON
    options BLOB NOT NULL,           -- canary, rate, from where, as JSON
    cutoff INTEGER NOT NULL,         -- the last letter that can belong to it
    moves INTEGER NOT NULL,          -- the last act before it: what came into its selection by a later one does not belong to it
    stamped_to INTEGER NOT NULL,     -- the letters up to this one have been looked at
    expected INTEGER NOT NULL,       -- how many letters were shown to whoever started it
    pardoned BLOB NOT NULL,          -- the counts that do not count any more since somebody resumed it, as JSON
    next_at REAL NOT NULL,           -- when the rate allows the next release
    why TEXT,                        -- what it waits for, or why it stopped
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

CREATE INDEX campaigns_live ON campaigns (id) WHERE ended_at IS NULL;

-- Letters that a campaign left out, and why.
CREATE TABLE campaign_skips (
    campaign_id INTEGER NOT NULL,
    letter_id INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (campaign_id, letter_id)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER letters_discarded AFTER UPDATE OF state ON dead_letters WHEN NEW.state = 'discarded' AND OLD.campaign_id IS NOT NULL
BEGIN
    INSERT INTO campaign_skips (campaign_id, letter_id, reason, at)
    VALUES (OLD.campaign_id, NEW.id, 'it was discarded meanwhile', NEW.last_failure_at);
END;

-- Changed values of failed jobs; the original stays where it is, and here. A replay takes the last edit of the part it starts with.
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

CREATE INDEX edits_of_letter ON edits (letter_id, part, id);
CREATE INDEX edits_of_job ON edits (job_id);

-- What the code of a pipeline says about replays, for whoever acts without the code at hand.
CREATE TABLE replay_rules (
    pipeline TEXT PRIMARY KEY,
    rules BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Letters that came from elsewhere, so that importing them twice brings them once; with what happened there, which is told but not
-- counted here.
CREATE TABLE imports (
    origin TEXT NOT NULL,
    letter INTEGER NOT NULL,         -- its id there
    job_id INTEGER NOT NULL,
    at REAL NOT NULL,                -- when it was brought in
    actor TEXT NOT NULL,
    job INTEGER NOT NULL,            -- the id of its job there
    attempts TEXT NOT NULL,          -- those made there, redacted, as JSON
    PRIMARY KEY (origin, letter)
) STRICT, WITHOUT ROWID;

CREATE INDEX imports_of_job ON imports (job_id);

-- Who this database is, for others.
CREATE TABLE installation (
    id TEXT NOT NULL
) STRICT;

INSERT INTO installation (id) VALUES (lower(hex(randomblob(8))));

-- What hooks and sinks still have to be told; written with the settlement it is about.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    lane_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    dispatch INTEGER NOT NULL,
    recipient TEXT NOT NULL,         -- `hook`, or the name of a sink
    due_at REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX outbox_due ON outbox (lane_id, recipient, due_at);
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

-- What people did, and why; and where a replay stopped itself. Rows are added and stay as they are.
CREATE TABLE operations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    verb TEXT NOT NULL,
    subject TEXT NOT NULL,
    reason TEXT,
    letters INTEGER,                 -- how many it was about
    change TEXT                      -- before and after, redacted, as JSON
) STRICT;

CREATE INDEX operations_on ON operations (subject, id);

-- Nothing has to change rows here: pruning leaves them, and no value of a job is in them that erasing would have to find.
CREATE TRIGGER operations_unchanged BEFORE UPDATE ON operations
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is changed');
END;

CREATE TRIGGER operations_kept BEFORE DELETE ON operations
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is deleted');
END;

-- INSERT OR REPLACE deletes a row without a trigger for that being asked.
CREATE TRIGGER operations_added BEFORE INSERT ON operations WHEN EXISTS (SELECT 1 FROM operations WHERE id = NEW.id)
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is replaced');
END;

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

CREATE TRIGGER imports_pruned AFTER DELETE ON jobs WHEN EXISTS (SELECT 1 FROM imports WHERE job_id = OLD.id)
BEGIN
    UPDATE imports SET attempts = '[]' WHERE job_id = OLD.id;
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
