-- SPDX-License-Identifier: Apache-2.0
-- Version 2: campaigns become replays, and marking a replay's letters replaces stamping them. The Python class of
-- a failure is its exception; what identifies it is the code. What was decided about an attempt is kept
-- as a value; sentences of before stay as they are.

DROP VIEW events;
DROP VIEW letters;
DROP VIEW letters_by_group;
DROP VIEW letters_by_campaign;
DROP TRIGGER letters_added;
DROP TRIGGER letters_moved;
DROP TRIGGER letters_pruned;
DROP TRIGGER letters_discarded;
DROP INDEX dead_letters_campaign;

ALTER TABLE dead_letters RENAME COLUMN campaign_id TO replay_id;
ALTER TABLE letter_tallies RENAME COLUMN campaign_id TO replay_id;

CREATE TABLE replay_skips (
    replay_id INTEGER NOT NULL,
    letter_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    job_id INTEGER,
    stage TEXT,
    detail TEXT,
    at REAL NOT NULL,
    PRIMARY KEY (replay_id, letter_id)
) STRICT, WITHOUT ROWID;

-- The beginning of each sentence, and what follows it.
INSERT INTO replay_skips (replay_id, letter_id, kind, job_id, stage, detail, at)
SELECT campaign_id, letter_id, coalesce(kind, 'old'),
    CASE kind WHEN 'key' THEN CAST(rest AS INTEGER) END,
    CASE kind WHEN 'stage' THEN substr(rest, 1, instr(rest, char(39)) - 1) WHEN 'type' THEN substr(rest, 1, instr(rest, ': ') - 1) END,
    CASE WHEN kind IS NULL THEN reason WHEN kind = 'running' THEN rest
        WHEN kind = 'type' THEN substr(rest, instr(rest, ': ') + 2) END, at
FROM (SELECT campaign_skips.*, kind, substr(reason, length(start) + 1) AS rest
    FROM campaign_skips LEFT JOIN (
        SELECT column1 AS kind, column2 AS start
        FROM (VALUES ('discarded', 'it was discarded meanwhile'), ('erased', 'its job has no values'), ('running', 'its job is '),
            ('key', 'a newer job has its key (job '), ('stage', 'the pipeline has no stage ' || char(39)),
            ('type', 'its value does not fit the stage ')))
        ON substr(reason, 1, length(start)) = start);

DROP TABLE campaign_skips;
ALTER TABLE letter_groups RENAME COLUMN error_class TO exception;
ALTER TABLE letter_facts RENAME COLUMN error_class TO exception;

CREATE TABLE new_attempts (
    seq INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL,
    dispatch INTEGER NOT NULL,
    lane_id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker_id TEXT NOT NULL,
    config TEXT,
    started_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome = 'ok' OR outcome = 'retry' OR outcome = 'hold' OR outcome = 'dead' OR outcome = 'crashed'
        OR outcome = 'cancelled'),
    burned INTEGER NOT NULL CHECK (burned = 0 OR burned = 1),
    code TEXT,
    exception TEXT,
    message TEXT,
    http_status INTEGER,
    decision TEXT,
    notes TEXT
) STRICT;

CREATE TABLE old_reasons (
    before TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    now TEXT NOT NULL
);

INSERT INTO old_reasons (before, kind, now)
VALUES ('told_delay', 'old', 'retry_after'), ('overran', 'ended', 'overran'), ('cancelled on request', 'ended', 'requested'),
    ('the worker died', 'ended', 'worker_lost'), ('the worker was stopped while it ran', 'ended', 'worker_stopped'),
    ('the process it shared died', 'ended', 'process_lost'), ('the process it ran in alone died', 'ended', 'own_process_lost');

INSERT INTO new_attempts (seq, job_id, dispatch, lane_id, round, attempt, worker_id, config, started_at, ended_at, outcome, burned, code,
    exception, message, http_status, decision, notes)
SELECT seq, job_id, dispatch, lane_id, round, attempt, worker_id, config, started_at, ended_at, outcome, burned, code, error_class, message,
    http_status,
    CASE WHEN sentence IS NOT NULL THEN json_object('kind', 'old', 'reason', coalesce(now, reason), 'text', sentence)
        WHEN reason IS NOT NULL THEN json_object('kind', coalesce(kind, 'old'), 'reason', coalesce(now, reason)) END, notes
FROM attempts LEFT JOIN old_reasons ON before = reason;

UPDATE imports SET attempts = (
    SELECT json_group_array(json(CASE WHEN reason IS NULL THEN value
        ELSE json_set(value, '$.reason', reason, '$.decision', json(decision)) END))
    FROM (SELECT value, coalesce(now, value ->> '$.reason') AS reason,
            CASE WHEN value ->> '$.sentence' IS NULL THEN json_object('kind', coalesce(kind, 'old'), 'reason', coalesce(now, value ->> '$.reason'))
                ELSE json_object('kind', 'old', 'reason', coalesce(now, value ->> '$.reason'), 'text', value ->> '$.sentence') END AS decision
        FROM json_each(imports.attempts) LEFT JOIN old_reasons ON before = value ->> '$.reason' ORDER BY key));

DROP TABLE old_reasons;
DROP TABLE attempts;
ALTER TABLE new_attempts RENAME TO attempts;
CREATE UNIQUE INDEX attempts_of_job ON attempts (job_id, dispatch);

CREATE TABLE replays (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('marking', 'running', 'paused', 'stopped', 'cancelling', 'cancelled', 'done')),
    filter BLOB NOT NULL,
    options BLOB NOT NULL,
    cutoff INTEGER NOT NULL,
    moves INTEGER NOT NULL,
    marked_to INTEGER NOT NULL,
    expected INTEGER NOT NULL,
    pardoned BLOB NOT NULL,
    next_at REAL NOT NULL,
    why TEXT,
    note TEXT,
    driver TEXT,
    driven_until REAL NOT NULL,
    actor TEXT NOT NULL,
    created_at REAL NOT NULL,
    ended_at REAL,
    closed_at REAL,
    CHECK ((status IN ('cancelled', 'done')) = (ended_at IS NOT NULL)),
    CHECK (closed_at IS NULL OR ended_at IS NOT NULL)
) STRICT;

INSERT INTO replays (id, pipeline, status, filter, options, cutoff, moves, marked_to, expected, pardoned, next_at, why, note, driver,
    driven_until, actor, created_at, ended_at, closed_at)
SELECT id, pipeline, CASE status WHEN 'stamping' THEN 'marking' ELSE status END, selection, options, cutoff, moves, stamped_to, expected,
    pardoned, next_at, why, note, driver, driven_until, actor, created_at, ended_at, closed_at
FROM campaigns;

DROP TABLE campaigns;
CREATE INDEX replays_live ON replays (id) WHERE ended_at IS NULL;
CREATE INDEX dead_letters_assignee ON dead_letters (assignee, last_failure_at, id) WHERE assignee IS NOT NULL;
CREATE INDEX dead_letters_escalated ON dead_letters (last_failure_at, id) WHERE is_escalated = 1;
CREATE INDEX dead_letters_replay ON dead_letters (replay_id, id) WHERE replay_id IS NOT NULL;

CREATE VIEW letters AS
SELECT letter.id, letter.job_id, letter.lane_id, letter.group_id, letter.round, letter.state, letter.replay_id, letter.verdict,
    letter.is_escalated, letter.follows, letter.owner, letter.key, letter.first_failure_at, letter.last_failure_at, letter.diagnosis,
    letter.assignee, letter.is_safe, letter.evidence, letter.closed_at, letter.moved, facts.code, facts.category, facts.is_retryable,
    facts.exception, letter_groups.fingerprint, facts.reason, facts.message, facts.context, facts.stack
FROM dead_letters letter CROSS JOIN letter_facts facts ON facts.letter_id = letter.id
    CROSS JOIN letter_groups ON letter_groups.id = letter.group_id;

CREATE VIEW letters_by_group AS
SELECT group_id, CASE WHEN standing = 'completed' OR standing = 'cancelled' THEN 'resolved' WHEN standing = 'same' OR standing = 'other'
    THEN 'returned' ELSE standing END AS state,
    replay_id <> 0 AND standing IN ('open', 'triaged', 'ready') AS is_taken, letters
FROM letter_tallies;

CREATE VIEW letters_by_replay AS
SELECT replay_id, CASE WHEN standing IN ('open', 'triaged', 'ready') THEN 'waiting' ELSE standing END AS standing,
    sum(letters + pruned) AS letters
FROM letter_tallies WHERE replay_id <> 0 GROUP BY 1, 2;

CREATE TRIGGER letters_added AFTER INSERT ON dead_letters
BEGIN
    INSERT INTO letter_tallies (replay_id, group_id, standing, letters) VALUES (0, NEW.group_id, NEW.state, 1)
    ON CONFLICT DO UPDATE SET letters = letters + 1;
    INSERT INTO letter_trend (group_id, hour, letters) VALUES (NEW.group_id, CAST(NEW.last_failure_at / 3600 AS INTEGER), 1)
    ON CONFLICT DO UPDATE SET letters = letters + 1;
    UPDATE letter_groups SET first_letter = NEW.id WHERE id = NEW.group_id AND first_letter IS NULL;
END;

CREATE TRIGGER letters_moved AFTER UPDATE OF state, replay_id, verdict ON dead_letters WHEN NEW.counted = OLD.counted
BEGIN
    INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
    VALUES (coalesce(OLD.replay_id, 0), OLD.group_id, coalesce(OLD.verdict, OLD.state), -1),
        (coalesce(NEW.replay_id, 0), NEW.group_id, coalesce(NEW.verdict, NEW.state), 1)
    ON CONFLICT DO UPDATE SET letters = letters + excluded.letters;
END;

CREATE TRIGGER letters_pruned AFTER DELETE ON dead_letters
BEGIN
    UPDATE letter_tallies SET letters = letters - 1, pruned = pruned + (OLD.verdict IS NOT NULL)
    WHERE replay_id = coalesce(OLD.replay_id, 0) AND group_id = OLD.group_id AND standing = coalesce(OLD.verdict, OLD.state);
    DELETE FROM letter_facts WHERE letter_id = OLD.id;
    DELETE FROM replay_skips WHERE letter_id = OLD.id AND replay_id = OLD.replay_id;
END;

CREATE TRIGGER letters_discarded AFTER UPDATE OF state ON dead_letters WHEN NEW.state = 'discarded' AND OLD.replay_id IS NOT NULL
BEGIN
    INSERT INTO replay_skips (replay_id, letter_id, kind, at) VALUES (OLD.replay_id, NEW.id, 'discarded', NEW.last_failure_at);
END;

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
    lanes.pipeline, lanes.stage, attempts.attempt, code, http_status, (ended_at - attempts.started_at) * 1000, decision ->> '$.reason'
FROM attempts JOIN jobs ON jobs.id = job_id JOIN lanes ON lanes.id = attempts.lane_id
UNION ALL
SELECT finished_at, id, dispatch, 3, 'cancelled', pipeline, NULL, attempt, NULL, NULL, NULL, NULL
FROM jobs WHERE status = 'cancelled' AND NOT EXISTS (
    SELECT 1 FROM attempts WHERE job_id = jobs.id AND attempts.dispatch = jobs.dispatch AND outcome = 'cancelled');

CREATE TABLE lane_breakers (
    breaker TEXT NOT NULL,
    lane_id INTEGER NOT NULL,
    PRIMARY KEY (breaker, lane_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE listeners (
    topic TEXT NOT NULL CHECK (topic IN ('letters', 'breakers')),
    pipeline TEXT NOT NULL,
    recipient TEXT NOT NULL,
    PRIMARY KEY (topic, pipeline, recipient)
) STRICT, WITHOUT ROWID;

CREATE TABLE new_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    lane_id INTEGER NOT NULL,
    job_id INTEGER,
    dispatch INTEGER,
    letter_id INTEGER,
    event TEXT,
    state TEXT,
    change_id INTEGER,
    recipient TEXT NOT NULL,
    at REAL NOT NULL,
    due_at REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO new_outbox (id, lane_id, job_id, dispatch, letter_id, event, state, recipient, at, due_at, tries)
SELECT outbox.id, outbox.lane_id, outbox.job_id, outbox.dispatch, letter.id, CASE WHEN letter.id IS NOT NULL THEN 'born' END,
    CASE WHEN letter.id IS NOT NULL THEN 'open' END, recipient, coalesce(ended_at, due_at), due_at, tries
FROM outbox LEFT JOIN attempts ON attempts.job_id = outbox.job_id AND attempts.dispatch = outbox.dispatch
    LEFT JOIN dead_letters letter ON letter.job_id = outbox.job_id AND letter.round = attempts.round AND outcome = 'dead';

DROP TABLE outbox;
ALTER TABLE new_outbox RENAME TO outbox;
CREATE INDEX outbox_due ON outbox (lane_id, recipient, due_at);
CREATE INDEX outbox_of_job ON outbox (job_id);

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

CREATE TABLE breaker_changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    breaker TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    cause TEXT NOT NULL CHECK (cause IN ('failures', 'probe', 'operator')),
    code TEXT,
    actor TEXT NOT NULL,
    reason TEXT
) STRICT;

CREATE TRIGGER breakers_changed AFTER INSERT ON breaker_changes
BEGIN
    INSERT INTO outbox (lane_id, change_id, recipient, at, due_at)
    SELECT min(lane_id), NEW.id, recipient, NEW.at, NEW.at
    FROM lane_breakers CROSS JOIN lanes ON lanes.id = lane_id
        CROSS JOIN listeners ON topic = 'breakers' AND listeners.pipeline = lanes.pipeline
    WHERE breaker = NEW.breaker GROUP BY lanes.pipeline, recipient;
    DELETE FROM breaker_changes WHERE id <= NEW.id - 10000;
END;

-- The operator log is changed this once: the start of a replay has its number and its filter under the new names.
DROP TRIGGER operations_unchanged;

UPDATE operations SET change = json_remove(json_set(change, '$.replay', change -> '$.campaign'), '$.campaign')
WHERE change -> '$.campaign' IS NOT NULL;

UPDATE operations SET change = json_remove(json_set(change, '$.filter', change -> '$.selection'), '$.selection')
WHERE change -> '$.selection' IS NOT NULL;

CREATE TRIGGER operations_unchanged BEFORE UPDATE ON operations
BEGIN
    SELECT raise(ABORT, 'the operator log is append-only: nothing in it is changed');
END;
