-- SPDX-License-Identifier: Apache-2.0
-- What people and the parts around the worker change; several statements may go into one transaction.

-- name: log
INSERT INTO operations (at, actor, verb, subject, reason) VALUES (?, ?, ?, ?, ?);

-- name: cancel_queued
UPDATE jobs SET status = 'cancelled', finished_at = ?, waiting = NULL WHERE id = ? AND status = 'queued';

-- name: ask_to_cancel
UPDATE jobs SET cancel_asked = 1 WHERE id = ? AND status = 'processing';

-- name: pause_pipeline
UPDATE lanes SET paused_at = ? WHERE pipeline = ?;

-- name: add_run
INSERT INTO runs (pipeline, status, options, created_at) VALUES (?, 'running', ?, ?) RETURNING id;

-- name: fed
UPDATE runs SET is_fed = 1 WHERE id = ?;

-- name: end_run
UPDATE runs SET status = ?, reason = ?, ended_at = ? WHERE id = ?;

-- name: restart_run
UPDATE runs SET status = 'running', reason = NULL, ended_at = NULL WHERE id = ?;

-- name: cancel_run
-- From an ordinal on, so that what has ended is not read again at every step.
UPDATE jobs SET status = 'cancelled', finished_at = ?1, waiting = NULL WHERE id IN (
    SELECT id FROM jobs INDEXED BY jobs_of_run WHERE run_id = ?2 AND ordinal >= ?4 AND status = 'queued' ORDER BY ordinal LIMIT ?3)
RETURNING ordinal;

-- name: ask_to_cancel_run
UPDATE jobs INDEXED BY jobs_leased SET cancel_asked = 1 WHERE run_id = ? AND status = 'processing' AND cancel_asked = 0;

-- name: pause_run
UPDATE jobs SET run_at = run_at + 1e12, waiting = 'paused' WHERE run_id = ? AND status = 'queued' AND run_at < 1e12;

-- name: unpause_run
UPDATE jobs SET run_at = run_at - 1e12, waiting = NULL WHERE run_id = ? AND status = 'queued' AND run_at >= 1e12;

-- name: put_schedule
INSERT INTO schedules (name, lane_id, cron, zone, payload, priority, next_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET lane_id = excluded.lane_id, payload = excluded.payload, priority = excluded.priority,
    next_at = CASE WHEN cron = excluded.cron AND zone = excluded.zone THEN next_at ELSE excluded.next_at END,
    cron = excluded.cron, zone = excluded.zone;

-- name: tick
UPDATE schedules SET next_at = ?, last_at = ? WHERE name = ? AND next_at = ?;

-- name: drop_schedule
DELETE FROM schedules WHERE name = ?;

-- name: submit_tick
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, payload, created_at)
SELECT lanes.pipeline, lanes.id, 'queued', ?2, ?3, ?4, ?5, ?6 FROM lanes WHERE lanes.id = ?1
ON CONFLICT DO NOTHING;

-- name: take_notice
UPDATE outbox SET due_at = ?, tries = tries + 1 WHERE id = ? AND tries = ?;

-- name: drop_notice
DELETE FROM outbox WHERE id = ?;
