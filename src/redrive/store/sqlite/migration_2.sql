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

-- The operator log is changed this once: the start of a replay has its number and its filter under the new names.
DROP TRIGGER operations_unchanged;

UPDATE operations SET change = json_remove(json_set(change, '$.replay', change -> '$.campaign'), '$.campaign')
WHERE change -> '$.campaign' IS NOT NULL;

UPDATE operations SET change = json_remove(json_set(change, '$.filter', change -> '$.selection'), '$.selection')
WHERE change -> '$.selection' IS NOT NULL;
