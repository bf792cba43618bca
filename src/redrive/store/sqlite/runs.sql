-- SPDX-License-Identifier: Apache-2.0
-- Runs and schedules.

-- name: add_run
INSERT INTO runs (pipeline, status, options, created_at) VALUES (?, 'running', ?, ?) RETURNING id;

-- name: end_source
UPDATE runs SET is_fed = 1 WHERE id = ?;

-- name: end_run
UPDATE runs SET status = ?, reason = ?, ended_at = ? WHERE id = ?;

-- name: restart_run
UPDATE runs SET status = 'running', options = ?, reason = NULL, ended_at = NULL WHERE id = ?;

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

-- name: run
SELECT id, pipeline, status, options, reason, is_fed, created_at, ended_at, items,
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'complete'),
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'failed'),
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'cancelled'),
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'skipped')
FROM runs WHERE id = ?;

-- name: runs
SELECT id FROM runs ORDER BY id DESC LIMIT ?;

-- name: run_tally
SELECT status, sum(jobs) FROM tallies WHERE run_id = ? GROUP BY status;

-- name: run_payloads
SELECT ordinal, coalesce(payload, (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = 0))
FROM jobs WHERE run_id = ? AND ordinal >= ? AND ordinal < ? ORDER BY ordinal;

-- name: run_codes
SELECT error_code, count(*) FROM jobs WHERE run_id = ? AND status = 'failed' GROUP BY error_code ORDER BY 2 DESC, 1;

-- name: running_runs
SELECT id, pipeline FROM runs WHERE status = 'running' ORDER BY id DESC LIMIT ?;

-- name: put_schedule
INSERT INTO schedules (name, lane_id, cron, zone, payload, priority, next_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET lane_id = excluded.lane_id, payload = excluded.payload, priority = excluded.priority,
    next_at = CASE WHEN cron = excluded.cron AND zone = excluded.zone THEN next_at ELSE excluded.next_at END,
    cron = excluded.cron, zone = excluded.zone;

-- name: schedule
SELECT lane_id, cron, zone, payload, priority FROM schedules WHERE name = ?;

-- name: tick
UPDATE schedules SET next_at = ?, last_at = ? WHERE name = ? AND next_at = ?;

-- name: drop_schedule
DELETE FROM schedules WHERE name = ?;

-- name: submit_tick
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, payload, created_at)
SELECT lanes.pipeline, lanes.id, 'queued', ?2, ?3, ?4, ?5, ?6 FROM lanes WHERE lanes.id = ?1
ON CONFLICT DO NOTHING;

-- name: schedules
SELECT name, lanes.pipeline, cron, zone, next_at, last_at FROM schedules JOIN lanes ON lanes.id = lane_id ORDER BY name;

-- name: due_schedules
SELECT name, lane_id, cron, zone, payload, priority, next_at FROM schedules WHERE next_at <= ? ORDER BY name;

-- name: next_schedule_at
SELECT min(next_at) FROM schedules;
