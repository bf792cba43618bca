-- SPDX-License-Identifier: Apache-2.0
-- Settling: the outcome of a dispatch, its attempt, its dead letter, and its notices, in one transaction. A statement takes all rows of a
-- batch at once: one array for each column. Jobs are locked in the order of the batch, which is the order of their ids.

-- name: complete
UPDATE jobs SET status = 'complete', finished_at = v.finished_at, result = v.result, lease_token = NULL, worker_id = NULL,
    suspect_count = 0, crash_count = 0, progress = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::double precision[], $5::bytea[]) AS v (id, token, dispatch, finished_at, result)
WHERE jobs.id = v.id AND jobs.lease_token = v.token AND jobs.dispatch = v.dispatch;

-- name: complete_large
UPDATE jobs SET status = 'complete', finished_at = v.finished_at, result_from = v.dispatch, lease_token = NULL, worker_id = NULL,
    suspect_count = 0, crash_count = 0, progress = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::double precision[]) AS v (id, token, dispatch, finished_at)
WHERE jobs.id = v.id AND jobs.lease_token = v.token AND jobs.dispatch = v.dispatch;

-- name: advance
-- A NULL input is a large one; it is in job_values, under the dispatch whose output it is.
UPDATE jobs SET status = CASE WHEN cancel_asked = 1 THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked = 1 THEN v.run_at END, lane_id = v.lane_id, input = v.input,
    input_from = CASE WHEN v.input IS NULL THEN v.dispatch ELSE 0 END, run_at = v.run_at, lane_key = NULL, attempt = 1, snoozes = 0,
    codes = NULL, suspect_count = 0, crash_count = 0, progress = NULL, lease_token = NULL, worker_id = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::double precision[])
    AS v (id, token, dispatch, lane_id, input, run_at)
WHERE jobs.id = v.id AND jobs.lease_token = v.token AND jobs.dispatch = v.dispatch;

-- name: continue_in_place
-- $1: the new lease_token; $2: now
UPDATE jobs SET lane_id = v.lane_id, input = v.input, input_from = CASE WHEN v.input IS NULL THEN v.dispatch ELSE 0 END,
    lane_key = NULL, run_at = $2, lease_token = $1, dispatch = jobs.dispatch + 1, last_attempt_at = $2, attempt = 1, snoozes = 0,
    codes = NULL, suspect_count = 0, crash_count = 0, progress = NULL
FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[]) AS v (id, token, dispatch, lane_id, input)
WHERE jobs.id = v.id AND jobs.lease_token = v.token AND jobs.dispatch = v.dispatch;

-- name: retry_in_place
-- $1: the new lease_token; $2: now
UPDATE jobs SET run_at = $2, lease_token = $1, dispatch = jobs.dispatch + 1, last_attempt_at = $2, attempt = v.attempt, snoozes = v.snoozes,
    codes = v.codes
FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[]) AS v (id, token, dispatch, attempt, snoozes, codes)
WHERE jobs.id = v.id AND jobs.lease_token = v.token AND jobs.dispatch = v.dispatch;

-- name: requeue
UPDATE jobs SET status = CASE WHEN cancel_asked = 1 THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked = 1 THEN v.ended_at END, run_at = v.run_at, attempt = v.attempt, snoozes = v.snoozes,
    codes = v.codes, waiting = CASE WHEN cancel_asked = 1 THEN NULL ELSE v.waiting END, suspect_count = v.suspect_count,
    crash_count = v.crash_count, lease_token = NULL, worker_id = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::double precision[], $5::bigint[], $6::bigint[], $7::bytea[], $8::text[],
    $9::bigint[], $10::bigint[], $11::double precision[])
    AS v (id, token, dispatch, run_at, attempt, snoozes, codes, waiting, suspect_count, crash_count, ended_at)
WHERE jobs.id = v.id AND jobs.lease_token = v.token AND jobs.dispatch = v.dispatch;

-- name: bury
UPDATE jobs SET status = 'failed', error_code = v.error_code, error_message = v.error_message, finished_at = v.finished_at,
    codes = v.codes, lease_token = NULL, worker_id = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::double precision[], $7::bytea[])
    AS v (id, token, dispatch, error_code, error_message, finished_at, codes)
WHERE jobs.id = v.id AND jobs.lease_token = v.token AND jobs.dispatch = v.dispatch;

-- name: end
-- Cancelled or skipped.
UPDATE jobs SET status = v.status, finished_at = v.finished_at, lease_token = NULL, worker_id = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::double precision[], $5::text[]) AS v (id, token, dispatch, finished_at, status)
WHERE jobs.id = v.id AND jobs.lease_token = v.token AND jobs.dispatch = v.dispatch;

-- name: insert_attempt
-- $1: worker_id
INSERT INTO attempts (worker_id, job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at, outcome, burned, code,
    exception, message, http_status, decision, notes)
SELECT $1, job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at, outcome, burned, code, exception, message,
    nullif(http_status, 0), decision, nullif(notes, '')
FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::double precision[],
    $9::double precision[], $10::text[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::text[], $17::text[])
    AS v (job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at, outcome, burned, code, exception, message,
        http_status, decision, notes);

-- name: insert_good_attempt
-- A plain success: no decision, no notes.
-- $1: worker_id
INSERT INTO attempts (worker_id, outcome, burned, job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at)
SELECT $1, 'ok', 1, v.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[],
    $8::double precision[], $9::double precision[]) AS v;

-- name: touch_groups
-- A group that is known stays as it is: all workers meet the same failure in an outage, and none of them waits for another's commit.
-- In one order, so that two who make the same groups cannot wait for each other.
INSERT INTO letter_groups (fingerprint, lane_id, code, category, exception, first_at, last_at)
SELECT DISTINCT ON (fingerprint, lane_id) fingerprint, lane_id, code, category, exception, min(at) OVER (PARTITION BY fingerprint, lane_id),
    max(at) OVER (PARTITION BY fingerprint, lane_id)
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::double precision[]) WITH ORDINALITY
    AS v (fingerprint, lane_id, code, category, exception, at, place)
ORDER BY fingerprint, lane_id, place
ON CONFLICT (fingerprint, lane_id) DO NOTHING;

-- name: insert_letters
-- A letter is escalated when a replay failed again with the same permanent code.
INSERT INTO dead_letters (job_id, lane_id, round, group_id, state, owner, key, run_id, first_failure_at, last_failure_at, follows,
    is_escalated)
SELECT v.job_id, v.lane_id, v.round, letter_groups.id, 'open', owner, key, run_id,
    (SELECT min(attempts.ended_at) FROM attempts WHERE attempts.job_id = v.job_id AND attempts.lane_id = v.lane_id
        AND attempts.round = v.round AND outcome IN ('retry', 'hold', 'dead')),
    v.at,
    (SELECT before.id FROM dead_letters before WHERE before.job_id = v.job_id AND before.state = 'replaying'),
    (v.is_retryable = 0 AND EXISTS (
        SELECT 1 FROM letters before WHERE before.job_id = v.job_id AND before.state = 'replaying' AND before.code = v.code))::integer
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::double precision[], $6::bigint[], $7::text[]) WITH ORDINALITY
    AS v (job_id, lane_id, round, fingerprint, at, is_retryable, code, place)
    JOIN jobs ON jobs.id = v.job_id JOIN letter_groups ON letter_groups.fingerprint = v.fingerprint AND letter_groups.lane_id = v.lane_id
ORDER BY place
RETURNING id, job_id, is_escalated;

-- name: insert_facts
INSERT INTO letter_facts (letter_id, code, category, is_retryable, exception, reason, message, context, stack)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::text[]);

-- name: insert_notices
-- Of a failed attempt or, with a letter, of its birth.
INSERT INTO outbox (lane_id, job_id, dispatch, letter_id, event, state, recipient, at, due_at)
SELECT lane_id, job_id, dispatch, letter_id, CASE WHEN letter_id IS NOT NULL THEN 'born' END,
    CASE WHEN letter_id IS NOT NULL THEN 'open' END, recipient, at, at
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::double precision[]) WITH ORDINALITY
    AS v (lane_id, job_id, dispatch, letter_id, recipient, at, place)
ORDER BY place;
