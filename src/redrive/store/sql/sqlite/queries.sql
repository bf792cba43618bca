-- SPDX-License-Identifier: Apache-2.0

-- name: add_lane
INSERT INTO lanes (pipeline, stage, position) VALUES (?, ?, ?)
ON CONFLICT (pipeline, stage) DO UPDATE SET position = excluded.position RETURNING id;

-- name: insert_job
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, payload, created_at)
VALUES (?, ?, 'queued', ?, ?, ?, ?, ?, ?);

-- name: twin
SELECT id FROM jobs WHERE pipeline = ? AND key = ? AND status IN ('queued', 'processing', 'complete');

-- name: start_worker
INSERT INTO workers (id, started_at, expires_at) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;

-- name: renew
UPDATE workers SET expires_at = ? WHERE id = ?;

-- name: give_back
UPDATE jobs SET status = 'queued', lease_token = NULL, worker_id = NULL, waiting = NULL
WHERE worker_id = ? AND status = 'processing';

-- name: forget_worker
DELETE FROM workers WHERE id = ?;

-- name: dead_workers
SELECT id FROM workers WHERE expires_at < ?;

-- name: crashed
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned, reason)
SELECT id, dispatch, lane_id, round, attempt, worker_id, last_attempt_at, ?, 'crashed', 0, 'the worker died'
FROM jobs WHERE worker_id = ? AND status = 'processing';

-- name: reclaim
UPDATE jobs SET status = 'queued', lease_token = NULL, worker_id = NULL, waiting = NULL, suspect_count = suspect_count + 1
WHERE worker_id = ? AND status = 'processing';

-- name: claim
UPDATE jobs SET status = 'processing', lease_token = ?, worker_id = ?, dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, ?), last_attempt_at = ?
WHERE id IN (
    SELECT id FROM jobs WHERE lane_id = ? AND status = 'queued' AND priority = ? AND run_at <= ?
    ORDER BY run_at, id LIMIT ?
)
RETURNING id, dispatch, lane_id, attempt, round, snoozes, codes, coalesce(input, payload), run_at;

-- name: complete
UPDATE jobs SET status = 'complete', result = ?, finished_at = ?, lease_token = NULL, worker_id = NULL, suspect_count = 0
WHERE id = ? AND lease_token = ? AND dispatch = ?;

-- name: advance
UPDATE jobs SET status = 'queued', lane_id = ?, input = ?, run_at = ?, attempt = 1, snoozes = 0, codes = NULL, suspect_count = 0,
    lease_token = NULL, worker_id = NULL
WHERE id = ? AND lease_token = ? AND dispatch = ?;

-- name: requeue
UPDATE jobs SET status = 'queued', run_at = ?, attempt = ?, snoozes = ?, codes = ?, waiting = ?, lease_token = NULL, worker_id = NULL
WHERE id = ? AND lease_token = ? AND dispatch = ?;

-- name: bury
UPDATE jobs SET status = 'failed', error_code = ?, error_message = ?, finished_at = ?, codes = ?, lease_token = NULL, worker_id = NULL
WHERE id = ? AND lease_token = ? AND dispatch = ?;

-- name: cancel
UPDATE jobs SET status = 'cancelled', finished_at = ?, lease_token = NULL, worker_id = NULL
WHERE id = ? AND lease_token = ? AND dispatch = ?;

-- name: insert_attempt
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned, code, message,
    http_status, reason, sentence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_letter
INSERT INTO dead_letters (job_id, lane_id, round, state, code, category, message, error_class, stack, fingerprint, context, reason,
    first_failure_at, last_failure_at)
VALUES (?, ?, ?, 'open', ?, ?, ?, ?, ?, ?, ?, ?,
    (SELECT min(ended_at) FROM attempts WHERE job_id = ? AND lane_id = ? AND round = ? AND outcome IN ('retry', 'hold', 'dead')), ?);

-- name: was_settled
SELECT 1 FROM attempts WHERE job_id = ? AND dispatch = ? AND outcome <> 'crashed';

-- name: job
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, error_code, error_message
FROM jobs JOIN lanes ON lanes.id = lane_id WHERE jobs.id = ?;

-- name: counts
SELECT lane_id, status, count(*) FROM jobs GROUP BY lane_id, status;

-- name: next_due_at
SELECT min(run_at) FROM jobs WHERE lane_id = ? AND status = 'queued' AND priority = ?;

-- name: held
SELECT count(*) FROM jobs WHERE status = 'processing' AND lane_id = ?;

-- name: breaker
SELECT state FROM breakers WHERE name = ?;

-- name: add_breaker
INSERT INTO breakers (name, state) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: swap_breaker
UPDATE breakers SET state = ? WHERE name = ? AND state = ?;

-- name: claimed_before
SELECT id, dispatch, lane_id, attempt, round, snoozes, codes, coalesce(input, payload), run_at
FROM jobs WHERE worker_id = ? AND status = 'processing' AND lease_token = ? ORDER BY run_at, id;

-- name: is_known
SELECT 1 FROM workers WHERE id = ?;
