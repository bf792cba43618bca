-- SPDX-License-Identifier: Apache-2.0
-- Settling: the outcome of a dispatch, its attempt, its dead letter, and its notices, in one transaction.

-- name: complete
-- row: id, lease_token, dispatch, finished_at, result
UPDATE jobs SET status = 'complete', finished_at = v.column4, result = v.column5, lease_token = NULL, worker_id = NULL,
    suspect_count = 0, crash_count = 0, progress = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: complete_large
-- row: id, lease_token, dispatch, finished_at
UPDATE jobs SET status = 'complete', finished_at = v.column4, result_from = v.column3, lease_token = NULL, worker_id = NULL,
    suspect_count = 0, crash_count = 0, progress = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: count_recovered
-- row: job_id
INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
SELECT replay, group_id, column1, ended * column2
FROM (SELECT coalesce(replay_id, 0) AS replay, group_id, count(*) AS ended
    FROM (VALUES {rows}) AS v JOIN dead_letters ON job_id = v.column1 WHERE state = 'replaying' GROUP BY 1, 2),
    (VALUES ('replaying', -1), ('completed', 1)) WHERE true
{add_letters};

-- name: close_recovered
-- What the trigger on jobs would do one by one, at more than twice the cost.
-- ?1: closed_at
-- row: job_id
UPDATE dead_letters SET state = 'resolved', outcome = 'completed', closed_at = ?1, counted = counted + 1
WHERE job_id IN (VALUES {rows}) AND state = 'replaying';

-- name: advance
-- A NULL input is a large one; it is in job_values, under the dispatch whose output it is.
-- row: id, lease_token, dispatch, lane_id, input, run_at
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN v.column6 END, lane_id = v.column4, input = v.column5,
    input_from = CASE WHEN v.column5 IS NULL THEN v.column3 ELSE 0 END, run_at = v.column6, lane_key = NULL, attempt = 1, snoozes = 0, codes = NULL, suspect_count = 0, crash_count = 0, progress = NULL, lease_token = NULL, worker_id = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: continue_in_place
-- ?1: the new lease_token; ?2: now
-- row: id, lease_token, dispatch, lane_id, input
UPDATE jobs SET lane_id = v.column4, input = v.column5, input_from = CASE WHEN v.column5 IS NULL THEN v.column3 ELSE 0 END,
    lane_key = NULL, run_at = ?2, lease_token = ?1, dispatch = jobs.dispatch + 1, last_attempt_at = ?2, attempt = 1, snoozes = 0, codes = NULL,
    suspect_count = 0, crash_count = 0, progress = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: retry_in_place
-- ?1: the new lease_token; ?2: now
-- row: id, lease_token, dispatch, attempt, snoozes, codes
UPDATE jobs SET run_at = ?2, lease_token = ?1, dispatch = jobs.dispatch + 1, last_attempt_at = ?2, attempt = v.column4, snoozes = v.column5,
    codes = v.column6
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: requeue
-- row: id, lease_token, dispatch, run_at, attempt, snoozes, codes, waiting, suspect_count, crash_count, ended_at
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN v.column11 END, run_at = v.column4, attempt = v.column5, snoozes = v.column6, codes = v.column7,
    waiting = CASE WHEN cancel_asked THEN NULL ELSE v.column8 END, suspect_count = v.column9, crash_count = v.column10, lease_token = NULL, worker_id = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: bury
-- row: id, lease_token, dispatch, error_code, error_message, finished_at, codes
UPDATE jobs SET status = 'failed', error_code = v.column4, error_message = v.column5, finished_at = v.column6, codes = v.column7,
    lease_token = NULL, worker_id = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: end
-- Cancelled or skipped.
-- row: id, lease_token, dispatch, finished_at, status
UPDATE jobs SET status = v.column5, finished_at = v.column4, lease_token = NULL, worker_id = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: continue_uniform
-- The same for a uniform batch: jobs that share all but their input, and whose counters were never moved.
-- ?1: the new lease_token; ?2: now; ?3: lane_id; ?4: lease_token; ?5: dispatch
-- row: id, input
UPDATE jobs SET lane_id = ?3, lane_key = NULL, input = v.column2, input_from = 0, run_at = ?2, lease_token = ?1, dispatch = ?5 + 1, last_attempt_at = ?2,
    progress = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = ?4 AND jobs.dispatch = ?5;

-- name: complete_uniform
-- ?1: lease_token; ?2: dispatch
-- row: id, finished_at, result
UPDATE jobs SET status = 'complete', finished_at = v.column2, result = v.column3, lease_token = NULL, worker_id = NULL, progress = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = ?1 AND jobs.dispatch = ?2;

-- name: insert_uniform_attempts
-- ?1: worker_id; ?2: dispatch; ?3: lane_id; ?4: round; ?5: config
-- row: job_id, started_at, ended_at
INSERT INTO attempts (worker_id, dispatch, lane_id, round, attempt, config, outcome, burned, job_id, started_at, ended_at)
SELECT ?1, ?2, ?3, ?4, 1, ?5, 'ok', 1, * FROM (VALUES {rows});

-- name: insert_attempt
-- ?1: worker_id
-- row: job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at, outcome, burned, code, exception, message, http_status, decision, notes
INSERT INTO attempts (worker_id, job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at, outcome, burned, code,
    exception, message, http_status, decision, notes)
SELECT ?1, column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11, column12, column13,
    nullif(column14, 0), column15, nullif(column16, '')
FROM (VALUES {rows});

-- name: insert_good_attempt
-- A plain success: no decision, no notes.
-- ?1: worker_id
-- row: job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at
INSERT INTO attempts (worker_id, job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at, outcome, burned)
SELECT ?1, *, 'ok', 1 FROM (VALUES {rows});

-- name: insert_letter
-- A letter is escalated when a replay failed again with the same permanent code.
INSERT INTO dead_letters (job_id, lane_id, round, group_id, state, owner, key, run_id, first_failure_at, last_failure_at, follows,
    is_escalated)
SELECT id, ?2, ?3, (SELECT letter_groups.id FROM letter_groups WHERE fingerprint = ?4 AND letter_groups.lane_id = ?2), 'open', owner, key, run_id,
    (SELECT min(ended_at) FROM attempts WHERE job_id = ?1 AND attempts.lane_id = ?2 AND attempts.round = ?3
        AND outcome IN ('retry', 'hold', 'dead')),
    ?5,
    (SELECT before.id FROM dead_letters before WHERE before.job_id = ?1 AND before.state = 'replaying'),
    NOT ?6 AND EXISTS (SELECT 1 FROM letters before WHERE before.job_id = ?1 AND before.state = 'replaying' AND before.code = ?7)
FROM jobs WHERE id = ?1;

-- name: is_escalated
SELECT is_escalated FROM dead_letters WHERE id = ?;

-- name: insert_facts
INSERT INTO letter_facts (letter_id, code, category, is_retryable, exception, reason, message, context, stack)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_notice
-- Of a failed attempt or, with a letter, of its birth.
INSERT INTO outbox (lane_id, job_id, dispatch, letter_id, event, state, recipient, at, due_at)
VALUES (?1, ?2, ?3, ?4, CASE WHEN ?4 IS NOT NULL THEN 'born' END, CASE WHEN ?4 IS NOT NULL THEN 'open' END, ?5, ?6, ?6);
