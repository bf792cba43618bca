-- SPDX-License-Identifier: Apache-2.0
-- What the engine asks. A statement with {rows} is made for as many rows as there are: each takes the parameters after "row:". What is
-- the same for all rows stands before them as ?1, ?2 ...: a parameter of a row costs as much as writing a column of it.

-- name: add_lane
INSERT INTO lanes (pipeline, stage, position, paused_at)
VALUES (?1, ?2, ?3, (SELECT max(paused_at) FROM lanes WHERE pipeline = ?1))
ON CONFLICT (pipeline, stage) DO UPDATE SET position = excluded.position RETURNING id;

-- name: insert_job
-- What a job does not have comes as a value that stands for nothing: `sqlite3` looks for an adapter of each None, which takes longer
-- than writing the row.
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, run_id, ordinal, parent_id, expires_at, payload, created_at)
VALUES (?, ?, 'queued', ?, ?, nullif(?, ''), nullif(?, ''), nullif(?, 0), nullif(?, -1), nullif(?, 0), nullif(?, -1e18), ?, ?);

-- name: count_items
UPDATE runs SET items = ?1 WHERE id = ?2 AND items < ?1;

-- name: insert_value
INSERT INTO job_values (job_id, dispatch, value) VALUES (?, ?, ?);

-- name: twin
SELECT id FROM jobs WHERE pipeline = ? AND key = ? AND status IN ('queued', 'processing', 'complete');

-- name: start_worker
INSERT INTO workers (id, host, process, pipelines, concurrency, started_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;

-- name: renew
UPDATE workers SET expires_at = ? WHERE id = ?;

-- name: cancel_asked
SELECT id FROM jobs WHERE worker_id = ? AND status = 'processing' AND cancel_asked = 1;

-- name: progress
UPDATE jobs SET progress = ? WHERE id = ? AND worker_id = ? AND status = 'processing' AND dispatch = ?;

-- name: give_back
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN last_attempt_at END, lease_token = NULL, worker_id = NULL, waiting = NULL
WHERE worker_id = ? AND status = 'processing';

-- name: give_back_one
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN last_attempt_at END, lease_token = NULL, worker_id = NULL, waiting = NULL
WHERE id = ? AND lease_token = ? AND dispatch = ?;

-- name: forget_worker
DELETE FROM workers WHERE id = ?;

-- name: dead_workers
SELECT id FROM workers WHERE expires_at < ?;

-- name: crashed
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned, reason)
SELECT id, dispatch, lane_id, round, attempt, worker_id, last_attempt_at, ?, 'crashed', 0, 'the worker died'
FROM jobs WHERE worker_id = ? AND status = 'processing';

-- name: reclaim
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN last_attempt_at END, lease_token = NULL, worker_id = NULL,
    waiting = CASE WHEN cancel_asked THEN NULL ELSE 'crashed' END, suspect_count = suspect_count + 1
WHERE worker_id = ? AND status = 'processing';

-- name: paused
SELECT id FROM lanes WHERE paused_at IS NOT NULL;

-- name: claim
-- One probe of the index per priority: those that are not due yet are never looked at, however many there are.
UPDATE jobs SET status = 'processing', lease_token = ?1, worker_id = ?2, dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, ?3), last_attempt_at = ?3
WHERE id IN (
    SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 0 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 1 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 2 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 3 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 4 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 5 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 6 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 7 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 8 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND status = 'queued' AND priority = 9 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    LIMIT ?5
);

-- name: claimed
-- All rows as one text: the rows of a cursor are fetched one by one, and any other thread may take the interpreter in between.
-- A value may be anything. The number of rows, and the token at the end of each, which no value can know, tell whether one reads as more
-- than itself; as bytes, because it need not be text.
SELECT count(*), CAST(group_concat(format('[%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%s,%s,%s,%s,%d]', priority, run_at * 1000000, id, dispatch,
    lane_id, attempt, round, snoozes, suspect_count, crash_count, restarts, cancel_asked,
    CASE WHEN input IS NULL AND (input_from > 0 OR payload IS NULL) THEN input_from ELSE -1 END,
    coalesce(expires_at, 'null'), coalesce(codes, 'null'),
    CASE WHEN input IS NULL AND input_from = 0 THEN 'null' ELSE coalesce(payload, 'false') END,
    CASE WHEN input IS NOT NULL THEN input WHEN input_from = 0 AND payload IS NOT NULL THEN payload ELSE 'null' END, lease_token)) AS BLOB)
FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND lease_token IN (?2, ?3);

-- name: claimed_rows
SELECT id, lease_token, dispatch, lane_id, attempt, round, snoozes, suspect_count, crash_count, restarts, cancel_asked, expires_at,
    CAST(codes AS BLOB),
    CAST(CASE WHEN input IS NOT NULL THEN input WHEN input_from = 0 AND payload IS NOT NULL THEN payload
    ELSE coalesce((SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = input_from), '') END AS BLOB),
    CAST(CASE WHEN input IS NOT NULL OR input_from > 0
    THEN coalesce(payload, (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = 0)) END AS BLOB)
FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND lease_token IN (?2, ?3) ORDER BY priority, run_at, id;

-- name: large_value
SELECT value FROM job_values WHERE job_id = ? AND dispatch = ?;

-- name: before_exchange
-- All there is to know before a commit in one step: between two steps every other thread may take the interpreter.
SELECT EXISTS (SELECT 1 FROM workers WHERE id = ?1),
    EXISTS (SELECT 1 FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND lease_token IN (?2, ?3)),
    (SELECT json_group_array(id) FROM lanes WHERE paused_at IS NOT NULL),
    (SELECT json_group_array(id) FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND cancel_asked = 1);

-- name: is_known
SELECT 1 FROM workers WHERE id = ?;

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
INSERT INTO letter_tallies (campaign_id, group_id, standing, letters)
SELECT campaign, group_id, column1, ended * column2
FROM (SELECT coalesce(campaign_id, 0) AS campaign, group_id, count(*) AS ended
    FROM (VALUES {rows}) AS v JOIN dead_letters ON job_id = v.column1 WHERE state = 'replaying' GROUP BY 1, 2),
    (VALUES ('replaying', -1), ('completed', 1)) WHERE true
ON CONFLICT DO UPDATE SET letters = letters + excluded.letters;

-- name: close_recovered
-- What the trigger on jobs would do one by one, at more than twice the cost.
-- ?1: closed_at
-- row: job_id
UPDATE dead_letters SET state = 'resolved', verdict = 'completed', closed_at = ?1, counted = counted + 1
WHERE job_id IN (VALUES {rows}) AND state = 'replaying';

-- name: advance
-- An input that is NULL here is a large one, and is found under the dispatch whose output it is.
-- row: id, lease_token, dispatch, lane_id, input, run_at
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN v.column6 END, lane_id = v.column4, input = v.column5,
    input_from = CASE WHEN v.column5 IS NULL THEN v.column3 ELSE 0 END, run_at = v.column6, attempt = 1, snoozes = 0, codes = NULL, suspect_count = 0, crash_count = 0, progress = NULL, lease_token = NULL, worker_id = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: go_on
-- ?1: the new lease_token; ?2: now
-- row: id, lease_token, dispatch, lane_id, input
UPDATE jobs SET lane_id = v.column4, input = v.column5, input_from = CASE WHEN v.column5 IS NULL THEN v.column3 ELSE 0 END,
    run_at = ?2, lease_token = ?1, dispatch = jobs.dispatch + 1, last_attempt_at = ?2, attempt = 1, snoozes = 0, codes = NULL,
    suspect_count = 0, crash_count = 0, progress = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: requeue
-- row: id, lease_token, dispatch, run_at, attempt, snoozes, codes, waiting, suspect_count, crash_count, ended_at
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN v.column11 END, run_at = v.column4, attempt = v.column5, snoozes = v.column6, codes = v.column7,
    waiting = v.column8, suspect_count = v.column9, crash_count = v.column10, lease_token = NULL, worker_id = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: bury
-- row: id, lease_token, dispatch, error_code, error_message, finished_at, codes
UPDATE jobs SET status = 'failed', error_code = v.column4, error_message = v.column5, finished_at = v.column6, codes = v.column7,
    lease_token = NULL, worker_id = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: cancel
-- row: id, lease_token, dispatch, finished_at
UPDATE jobs SET status = 'cancelled', finished_at = v.column4, lease_token = NULL, worker_id = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = v.column2 AND jobs.dispatch = v.column3;

-- name: go_on_crowd
-- The same for many that share all but their input, and whose counters stand at their beginning.
-- ?1: the new lease_token; ?2: now; ?3: lane_id; ?4: lease_token; ?5: dispatch
-- row: id, input
UPDATE jobs SET lane_id = ?3, input = v.column2, input_from = 0, run_at = ?2, lease_token = ?1, dispatch = ?5 + 1, last_attempt_at = ?2,
    progress = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = ?4 AND jobs.dispatch = ?5;

-- name: complete_crowd
-- ?1: lease_token; ?2: dispatch
-- row: id, finished_at, result
UPDATE jobs SET status = 'complete', finished_at = v.column2, result = v.column3, lease_token = NULL, worker_id = NULL, progress = NULL
FROM (VALUES {rows}) AS v WHERE jobs.id = v.column1 AND jobs.lease_token = ?1 AND jobs.dispatch = ?2;

-- name: insert_crowd
-- ?1: worker_id; ?2: dispatch; ?3: lane_id; ?4: round; ?5: config
-- row: job_id, started_at, ended_at
INSERT INTO attempts (worker_id, dispatch, lane_id, round, attempt, config, outcome, burned, job_id, started_at, ended_at)
SELECT ?1, ?2, ?3, ?4, 1, ?5, 'ok', 1, * FROM (VALUES {rows});

-- name: insert_attempt
-- ?1: worker_id
-- row: job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at, outcome, burned, code, error_class, message, http_status, reason, sentence, notes
INSERT INTO attempts (worker_id, job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at, outcome, burned, code,
    error_class, message, http_status, reason, sentence, notes)
SELECT ?1, column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11, column12, column13,
    nullif(column14, 0), column15, column16, nullif(column17, '')
FROM (VALUES {rows});

-- name: insert_good_attempt
-- One of which there is nothing to tell but that it went well.
-- ?1: worker_id
-- row: job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at
INSERT INTO attempts (worker_id, job_id, dispatch, lane_id, round, attempt, config, started_at, ended_at, outcome, burned)
SELECT ?1, *, 'ok', 1 FROM (VALUES {rows});

-- name: touch_group
INSERT INTO letter_groups (fingerprint, lane_id, code, category, error_class, first_at, last_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)
ON CONFLICT (fingerprint, lane_id) DO UPDATE SET last_at = max(last_at, excluded.last_at);

-- name: insert_letter
-- A replay that failed with the permanent code it was meant to cure is escalated.
INSERT INTO dead_letters (job_id, lane_id, round, group_id, state, owner, key, first_failure_at, last_failure_at, follows, is_escalated)
SELECT id, ?2, ?3, (SELECT letter_groups.id FROM letter_groups WHERE fingerprint = ?4 AND letter_groups.lane_id = ?2), 'open', owner, key,
    (SELECT min(ended_at) FROM attempts WHERE job_id = ?1 AND attempts.lane_id = ?2 AND attempts.round = ?3
        AND outcome IN ('retry', 'hold', 'dead')),
    ?5,
    (SELECT before.id FROM dead_letters before WHERE before.job_id = ?1 AND before.state = 'replaying'),
    NOT ?6 AND EXISTS (SELECT 1 FROM letters before WHERE before.job_id = ?1 AND before.state = 'replaying' AND before.code = ?7)
FROM jobs WHERE id = ?1;

-- name: insert_facts
INSERT INTO letter_facts (letter_id, code, category, is_retryable, error_class, reason, message, context, stack)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_notice
INSERT INTO outbox (lane_id, job_id, dispatch, due_at, recipient) VALUES (?, ?, ?, ?, ?);

-- name: was_settled
SELECT 1 FROM attempts WHERE job_id = ? AND dispatch = ? AND outcome <> 'crashed';

-- name: next_due_at
SELECT min(at) FROM (
    SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 0
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 1
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 2
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 3
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 4
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 5
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 6
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 7
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 8
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND priority = 9
);

-- name: outlook
-- One probe of the index per lane and priority, as in `next_due_at`.
SELECT lane.value,
    (SELECT min((SELECT min(run_at) FROM jobs WHERE lane_id = lane.value AND status = 'queued' AND priority = column1))
        FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))),
    (SELECT count(*) FROM jobs WHERE status = 'processing' AND lane_id = lane.value),
    (SELECT json_group_array(id) FROM lanes WHERE paused_at IS NOT NULL)
FROM json_each(?) AS lane;

-- name: breaker
SELECT state FROM breakers WHERE name = ?;

-- name: add_breaker
INSERT INTO breakers (name, state) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: swap_breaker
UPDATE breakers SET state = ? WHERE name = ? AND state = ?;
