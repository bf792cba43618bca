-- SPDX-License-Identifier: Apache-2.0
-- Rows of a database of version 1: jobs in every state, attempts with every outcome and with decisions as sentences, letters in every
-- state, replays in every status. Counters are written by the triggers.

INSERT INTO lanes (id, pipeline, stage, position, paused_at) VALUES (1, 'shop', 'fetch', 0, NULL), (2, 'shop', 'save', 1, NULL), (3, 'api', 'call', 0, 1000.0);
INSERT INTO workers (id, host, process, pipelines, concurrency, started_at, expires_at) VALUES ('w1', 'here', 7, '["shop"]', 4, 1000.0, 9e9);
INSERT INTO breakers (name, state) VALUES ('api', X'7B7D');
INSERT INTO runs (id, pipeline, status, options, reason, items, is_fed, created_at, ended_at) VALUES (1, 'shop', 'partial_success', X'7B7D', '1 of 2 failed', 2, 1, 1000.0, 1100.0);

-- A job is made queued, and then moved, because only moving a job counts it.
INSERT INTO jobs (id, pipeline, lane_id, status, priority, run_at, key, owner, run_id, ordinal, payload, created_at, round, dispatch, attempt, waiting)
VALUES (1, 'shop', 1, 'queued', 5, 1000.0, 'k1', 'ann', NULL, NULL, X'31', 1000.0, 1, 0, 1, NULL),
    (2, 'shop', 1, 'queued', 5, 1010.0, NULL, NULL, NULL, NULL, X'32', 1000.0, 1, 3, 4, 'retry'),
    (3, 'api', 3, 'queued', 5, 1020.0, NULL, NULL, NULL, NULL, X'33', 1000.0, 1, 1, 1, 'hold'),
    (4, 'shop', 1, 'queued', 5, 1000.0, NULL, NULL, NULL, NULL, X'34', 1000.0, 1, 2, 1, 'crashed'),
    (5, 'shop', 1, 'queued', 5, 1000.0, NULL, NULL, NULL, NULL, X'35', 1000.0, 1, 1, 1, NULL),
    (6, 'shop', 2, 'queued', 5, 1000.0, 'k6', NULL, 1, 0, X'36', 1000.0, 1, 2, 1, NULL),
    (7, 'shop', 2, 'queued', 5, 1000.0, NULL, NULL, NULL, NULL, NULL, 1000.0, 1, 2, 1, NULL),
    (8, 'shop', 1, 'queued', 5, 1000.0, NULL, NULL, NULL, NULL, X'38', 1000.0, 1, 1, 1, NULL),
    (9, 'shop', 1, 'queued', 5, 1000.0, NULL, NULL, NULL, NULL, X'39', 1000.0, 1, 1, 1, NULL);
INSERT INTO jobs (id, pipeline, lane_id, status, priority, run_at, key, owner, run_id, ordinal, payload, created_at, round, dispatch)
SELECT value, 'shop', 1, 'queued', 5, 1000.0, NULL, 'ann', CASE value WHEN 11 THEN 1 END, CASE value WHEN 11 THEN 1 END, X'31', 1000.0, 1, 2
FROM json_each('[11, 12, 13, 14, 15, 16, 17, 18]');
INSERT INTO job_values (job_id, dispatch, value) VALUES (7, 0, X'37'), (7, 2, X'3737');

UPDATE jobs SET status = 'processing', lease_token = 9, worker_id = 'w1', last_attempt_at = 1001.0, started_at = 1001.0 WHERE id = 5;
UPDATE jobs SET status = 'complete', finished_at = 1003.0, result = X'3636' WHERE id = 6;
UPDATE jobs SET status = 'complete', finished_at = 1003.0, result_from = 2 WHERE id = 7;
UPDATE jobs SET status = 'cancelled', finished_at = 1002.0 WHERE id IN (8, 9);
UPDATE jobs SET status = 'failed', finished_at = 1002.0, error_code = 'NETWORK_RESET', error_message = 'reset' WHERE id >= 11;

INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, config, started_at, ended_at, outcome, burned, code, error_class, message, http_status, reason, sentence, notes)
VALUES (2, 1, 1, 1, 1, 'w1', 'c0ffee', 1001.0, 1002.0, 'retry', 1, 'NETWORK_RESET', 'builtins.ConnectionResetError', 'reset', NULL, 'retryable',
        'attempt 1 of 3 failed with NETWORK_RESET: again in 8 s (backoff)', '{"step":"two"}'),
    (3, 1, 3, 1, 1, 'w1', 'c0ffee', 1001.0, 1002.0, 'hold', 0, 'NETWORK_RESET', 'builtins.ConnectionResetError', 'down', 503, 'breaker',
        'NETWORK_RESET while breaker ''api'' is open: held, no attempt burned', NULL),
    (4, 1, 1, 1, 1, 'w0', NULL, 1001.0, 1002.0, 'crashed', 0, NULL, NULL, NULL, NULL, 'the worker died', NULL, NULL),
    (4, 2, 1, 1, 1, 'w1', NULL, 1002.0, 1003.0, 'crashed', 0, NULL, NULL, NULL, NULL, 'the process it shared died', NULL, NULL),
    (6, 1, 1, 1, 1, 'w1', 'c0ffee', 1001.0, 1002.0, 'ok', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (6, 2, 2, 1, 1, 'w1', 'c0ffee', 1002.0, 1003.0, 'ok', 1, NULL, NULL, NULL, NULL, 'overran', NULL, NULL),
    (7, 1, 1, 1, 1, 'w1', 'c0ffee', 1001.0, 1002.0, 'ok', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (7, 2, 2, 1, 1, 'w1', 'c0ffee', 1002.0, 1003.0, 'ok', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (8, 1, 1, 1, 1, 'w1', 'c0ffee', 1001.0, 1002.0, 'cancelled', 0, NULL, NULL, NULL, NULL, 'cancelled on request', NULL, NULL),
    (9, 1, 1, 1, 1, 'w1', 'c0ffee', 1001.0, 1002.0, 'cancelled', 1, 'CANCELLED', 'redrive.Cancel', 'no use', NULL, 'asked', 'the stage asked to cancel', NULL),
    (2, 2, 1, 1, 2, 'w1', 'c0ffee', 1002.0, 1003.0, 'retry', 1, 'NETWORK_RESET', 'builtins.ConnectionResetError', 'reset', NULL, 'told_delay', NULL, NULL),
    (2, 3, 1, 1, 3, 'w1', 'c0ffee', 1003.0, 1004.0, 'retry', 1, 'NETWORK_RESET', 'builtins.ConnectionResetError', 'reset', NULL, 'retryable', NULL, NULL);
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, config, started_at, ended_at, outcome, burned, code, error_class, message, reason, sentence)
SELECT id, 1, 1, 1, 1, 'w1', 'c0ffee', 1000.0, 1001.0, 'retry', 1, 'NETWORK_RESET', 'builtins.ConnectionResetError', 'reset', 'told_delay',
    'attempt 1 of 2 failed with NETWORK_RESET: again in 1 s (as the dependency told us): retry_on="all" retries whatever fails, and it counts as retryable'
FROM jobs WHERE id >= 11;
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, config, started_at, ended_at, outcome, burned, code, error_class, message, reason, sentence)
SELECT id, 2, 1, 1, 2, 'w1', 'c0ffee', 1001.0, 1002.0, 'dead', 1, 'NETWORK_RESET', 'builtins.ConnectionResetError', 'reset', 'exhausted',
    'attempt 2 of 2 failed with NETWORK_RESET: none is left'
FROM jobs WHERE id >= 11;

INSERT INTO letter_groups (id, fingerprint, lane_id, code, category, error_class, first_at, last_at)
VALUES (1, 'f1', 1, 'NETWORK_RESET', 'network', 'builtins.ConnectionResetError', 1000.0, 1002.0),
    (2, 'f2', 1, 'NETWORK_RESET', 'network', 'builtins.ConnectionResetError', 1000.0, 1002.0);
INSERT INTO dead_letters (id, job_id, lane_id, group_id, round, state, owner, first_failure_at, last_failure_at)
SELECT id - 10, id, 1, 1, 1, 'open', 'ann', 1001.0, 1002.0 FROM jobs WHERE id >= 11;
INSERT INTO letter_facts (letter_id, code, category, is_retryable, error_class, reason, message, context, stack)
SELECT id, 'NETWORK_RESET', 'network', 1, 'builtins.ConnectionResetError', 'exhausted', 'reset', X'7B7D', 'a stack' FROM dead_letters;

INSERT INTO campaigns (id, pipeline, status, selection, options, cutoff, moves, stamped_to, expected, pardoned, next_at, why, note, driver, driven_until, actor, created_at, ended_at, closed_at)
SELECT 1 + key, 'shop', value, CAST('{"pipeline":"shop"}' AS BLOB), CAST('{"plan":{"canary":[1,5]},"is_evidence_optional":true}' AS BLOB), 8, 3, CASE value WHEN 'stamping' THEN 4 ELSE 8 END, 2, X'7B7D', 1002.0,
    CASE value WHEN 'stopped' THEN 'the canary failed' END, CASE value WHEN 'done' THEN 'all is well' END, 'w1', 1010.0, 'ann', 1002.0,
    CASE WHEN value IN ('cancelled', 'done') THEN 1005.0 END, CASE value WHEN 'done' THEN 1006.0 END
FROM json_each('["stamping", "running", "paused", "stopped", "cancelling", "cancelled", "done"]');
INSERT INTO campaign_skips (campaign_id, letter_id, reason, at) VALUES (7, 1, 'it was edited meanwhile', 1004.0), (6, 1, 'a newer job has its key (job 12)', 1004.0),
    (6, 2, 'its job has no values: they were erased for good, or left out of its export (then dlq edit can supply one)', 1004.0),
    (6, 3, 'its job is queued', 1004.0), (6, 4, 'the pipeline has no stage ''ship'' any more', 1004.0),
    (6, 5, 'its value does not fit the stage fetch: Expected `int`: got `str`', 1004.0);

-- 1 open; 2 triaged; 3 ready and taken by replay 2; 4 discarded; 5 replaying in replay 2; 6 resolved and 7 returned by replay 7; 8 open and taken by replay 1.
UPDATE letter_moves SET last = 3;
UPDATE dead_letters SET state = 'triaged', diagnosis = 'transient', assignee = 'bob', moved = 1 WHERE id = 2;
UPDATE dead_letters SET state = 'ready', evidence = 'the network is back', is_safe = 1, moved = 2, campaign_id = 2 WHERE id = 3;
UPDATE dead_letters SET campaign_id = 2 WHERE id = 4;
UPDATE dead_letters SET state = 'discarded', campaign_id = NULL, moved = 3 WHERE id = 4;
UPDATE dead_letters SET campaign_id = 2 WHERE id = 5;
UPDATE dead_letters SET campaign_id = 7 WHERE id IN (6, 7);
UPDATE dead_letters SET campaign_id = 1, freed = 1 WHERE id = 8;
UPDATE dead_letters SET state = 'replaying' WHERE id IN (5, 6, 7);
UPDATE jobs SET status = 'queued', waiting = 'replay', round = 2, attempt = 1, error_code = NULL, error_message = NULL, finished_at = NULL WHERE id IN (15, 16, 17);
UPDATE jobs SET status = 'complete', waiting = NULL, result = X'31', finished_at = 1004.0 WHERE id = 16;
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned, code, message, reason, sentence)
VALUES (16, 3, 1, 2, 1, 'w1', 1003.0, 1004.0, 'ok', 1, NULL, NULL, NULL, NULL),
    (17, 3, 1, 2, 1, 'w1', 1003.0, 1004.0, 'dead', 1, 'BUG_CODE', 'a bug', 'permanent', 'BUG_CODE is not retried (a bug by its type)');
UPDATE jobs SET status = 'failed', waiting = NULL, error_code = 'BUG_CODE', error_message = 'a bug', finished_at = 1004.0 WHERE id = 17;
INSERT INTO dead_letters (id, job_id, lane_id, group_id, round, state, owner, first_failure_at, last_failure_at, follows) VALUES (9, 17, 1, 2, 2, 'open', 'ann', 1004.0, 1004.0, 7);
INSERT INTO letter_facts (letter_id, code, category, is_retryable, error_class, reason, message, context, stack) VALUES (9, 'BUG_CODE', 'bug', 0, 'builtins.ValueError', 'permanent', 'a bug', X'7B7D', 'a stack');

INSERT INTO edits (letter_id, job_id, part, before, after, at, actor) VALUES (3, 13, 'payload', X'31', X'32', 1003.0, 'bob');
INSERT INTO replay_rules (pipeline, rules) VALUES ('shop', CAST('{"evidence":"optional"}' AS BLOB));
INSERT INTO imports (origin, letter, job_id, at, actor, job, attempts) VALUES ('elsewhere', 4, 12, 1003.0, 'bob', 44,
    '[{"dispatch":1,"stage":"fetch","round":1,"attempt":1,"outcome":"dead","started_at":900.0,"ended_at":901.0,"code":"NETWORK_RESET","message":"reset","http_status":null,"reason":"permanent","sentence":"NETWORK_RESET is not retried (a test)","duration":1.0},
    {"dispatch":2,"stage":"fetch","round":1,"attempt":1,"outcome":"retry","started_at":901.0,"ended_at":902.0,"code":"NETWORK_RESET","message":"reset","http_status":null,"reason":"told_delay","sentence":"again in 1 s (as the dependency told us)","duration":1.0},
    {"dispatch":3,"stage":"fetch","round":1,"attempt":2,"outcome":"retry","started_at":902.0,"ended_at":903.0,"code":"NETWORK_RESET","message":"reset","http_status":null,"reason":"told_delay","sentence":null,"duration":1.0},
    {"dispatch":4,"stage":"fetch","round":1,"attempt":3,"outcome":"crashed","started_at":903.0,"ended_at":904.0,"code":null,"message":null,"http_status":null,"reason":"the worker died","sentence":null,"duration":1.0},
    {"dispatch":5,"stage":"fetch","round":1,"attempt":3,"outcome":"ok","started_at":904.0,"ended_at":905.0,"code":null,"message":null,"http_status":null,"reason":null,"sentence":null,"duration":1.0}]');
INSERT INTO outbox (lane_id, job_id, dispatch, recipient, due_at, tries) VALUES (1, 11, 2, 'hook', 1002.0, 1);
INSERT INTO schedules (name, lane_id, cron, zone, payload, priority, next_at, last_at) VALUES ('nightly', 1, '0 3 * * *', 'UTC', X'31', 5, 9e9, NULL);
INSERT INTO operations (at, actor, verb, subject, reason, letters, change) VALUES (1002.0, 'ann', 'replay', 'replay 2', 'try again', 2, '{"selection":{"pipeline":"shop"},"plan":{"canary":[1,5]},"campaign":2}'), (1003.0, 'bob', 'discard', 'letter 4', NULL, 1, NULL);
