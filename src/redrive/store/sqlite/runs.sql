-- SPDX-License-Identifier: Apache-2.0
-- Runs and schedules.

-- name: add_run
INSERT INTO runs (pipeline, status, options, created_at) VALUES (?, 'running', ?, ?) RETURNING id;

-- name: open_run
-- A run that has all its items: they follow in the same transaction.
INSERT INTO runs (pipeline, status, options, created_at, is_fed, items, key, label, owner) VALUES (?, 'running', ?, ?, 1, ?, ?, ?, ?)
ON CONFLICT DO NOTHING RETURNING id;

-- name: open_items
-- Of the run that was opened just before: ?1 lane_id, ?2 now, ?3 the items as JSON, each with payload, key, owner and priority; ?4 how
-- many bytes of a payload are kept in the job's own row. One whose key is taken is left out, and then the whole is rolled back.
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, run_id, ordinal, payload, created_at)
SELECT lanes.pipeline, lanes.id, 'queued', item.value ->> 3, ?2, item.value ->> 1, item.value ->> 2, (SELECT max(id) FROM runs), item.key,
    CASE WHEN length(CAST(item.value ->> 0 AS BLOB)) <= ?4 THEN CAST(item.value ->> 0 AS BLOB) END, ?2
FROM json_each(?3) AS item CROSS JOIN lanes ON lanes.id = ?1 WHERE true ON CONFLICT DO NOTHING;

-- name: open_values
-- ?1 the items as JSON; ?2 as above
INSERT INTO job_values (job_id, dispatch, value)
SELECT jobs.id, 0, CAST(item.value ->> 0 AS BLOB) FROM json_each(?1) AS item
    CROSS JOIN jobs ON run_id = (SELECT max(id) FROM runs) AND ordinal = item.key
WHERE length(CAST(item.value ->> 0 AS BLOB)) > ?2;

-- name: open_traces
-- Of all items of that run: ?1 where it was opened.
INSERT INTO job_traces (job_id, traceparent) SELECT id, ?1 FROM jobs WHERE run_id = (SELECT max(id) FROM runs);

-- name: run_with_key
SELECT id FROM runs WHERE pipeline = ? AND key = ?;

-- name: taken_item
-- The first item whose key a job has already: its place, the key and the job.
SELECT item.key AS place, jobs.key, jobs.id AS job FROM json_each(?2) AS item
    JOIN jobs ON jobs.pipeline = ?1 AND jobs.key = item.value ->> 1 AND status IN ('queued', 'processing', 'complete')
ORDER BY item.key LIMIT 1;

-- name: end_source
UPDATE runs SET is_fed = 1 WHERE id = ?;

-- name: open_source
-- Not of a run that has ended meanwhile; a paused one has not.
UPDATE runs SET is_fed = 0 WHERE id = ? AND (ended_at IS NULL OR status = 'paused');

-- name: keep_run
-- The process that feeds it decides its status until then.
UPDATE runs SET driven_until = ? WHERE id = ?;

-- name: end_run
-- Not one that somebody cancelled or paused meanwhile, except to record its end.
UPDATE runs SET status = ?1, reason = ?2, ended_at = ?3 WHERE id = ?4 AND (status NOT IN ('cancelled', 'paused') OR status = ?1);

-- name: live_runs
-- Those whose status may have to be decided, at ?1: all items have ended, or too many may have failed; or whose items were being
-- cancelled by somebody who is gone. The last column says that no process drives it.
SELECT id, status, options, total, complete, failed, cancelled, skipped, driven_until <= ?1 AS is_free FROM (
    SELECT runs.id, runs.status, options, is_fed, driven_until, items + children AS total,
        (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id) AS ended,
        (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'complete') AS complete,
        (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'failed') AS failed,
        (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'cancelled') AS cancelled,
        (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'skipped') AS skipped
    FROM runs INDEXED BY runs_live
    WHERE ended_at IS NULL AND status <> 'paused')
WHERE (ended >= total AND driven_until <= ?1 AND (is_fed OR status IN ('cancelled', 'aborted')))
    OR (ended < total AND (status = 'running' OR (status = 'aborted' AND driven_until > 0 AND driven_until <= ?1)))
ORDER BY id;

-- name: has_permanent
SELECT EXISTS (SELECT 1 FROM dead_letters INDEXED BY dead_letters_run CROSS JOIN letter_facts ON letter_id = dead_letters.id
    WHERE run_id = ? AND is_retryable = 0);

-- name: has_live_runs
SELECT EXISTS (SELECT 1 FROM runs INDEXED BY runs_live WHERE ended_at IS NULL AND status <> 'paused');

-- name: lock_run
-- Before `decide_run`: here the transaction keeps everybody else out already.
SELECT id FROM runs WHERE id = ?1;

-- name: decide_run
-- Once, and only while it still is as it was when its status was decided.
UPDATE runs SET status = ?1, reason = coalesce(?2, reason), ended_at = ?3
WHERE id = ?4 AND status = ?5 AND ended_at IS NULL AND items + children = ?6
    AND (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = ?4) = ?7
    AND (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = ?4 AND tallies.status = 'complete') = ?8;

-- name: restart_run
UPDATE runs SET status = 'running', options = ?, reason = NULL, ended_at = NULL WHERE id = ?;

-- name: stop_run
-- By an operator, or by its failure budget: ?1 is paused, cancelled or aborted. One that failed before all its items have ended, too.
UPDATE runs SET status = ?1, reason = ?2, ended_at = ?3
WHERE id = ?4 AND status <> ?1 AND (status IN ('running', 'paused') OR (status = 'failed' AND ended_at IS NULL));

-- name: continue_run
UPDATE runs SET status = 'running', options = ?, reason = NULL, ended_at = NULL WHERE id = ? AND status = 'paused';

-- name: label_run
UPDATE runs SET label = ? WHERE id = ?;

-- name: paused_at_work
-- Items of paused runs that are in a stage: they are queued again after it, or after a later one, and have to be paused as well.
SELECT jobs.id, run_id FROM jobs INDEXED BY jobs_leased CROSS JOIN runs ON runs.id = run_id
WHERE jobs.status = 'processing' AND runs.status = 'paused';

-- name: pause_jobs
-- Those of these jobs that are queued again, if their run still is paused: ?1 their ids as JSON.
UPDATE jobs SET run_at = run_at + 1e12, waiting = 'paused' WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'queued'
    AND run_at < 1e12 AND EXISTS (SELECT 1 FROM runs WHERE runs.id = run_id AND runs.status = 'paused');

-- name: join_run
-- A job of a stage joins the run of its parent, after all items of its source.
UPDATE runs SET children = children + 1 WHERE id = (SELECT run_id FROM jobs WHERE jobs.id = ?1)
RETURNING id, children - 1 + (1 << 40), status;

-- name: stop_child
-- A job that joined a run that is stopped: it waits as its items do, or ends like them.
UPDATE jobs SET status = CASE ?2 WHEN 'cancelled' THEN 'cancelled' ELSE status END, finished_at = CASE ?2 WHEN 'cancelled' THEN ?3 END,
    run_at = run_at + CASE ?2 WHEN 'paused' THEN 1e12 ELSE 0 END, waiting = CASE ?2 WHEN 'paused' THEN 'paused' END
WHERE id = ?1;

-- name: cancel_run
-- From an ordinal on, so that what has ended is not read again at every step.
UPDATE jobs SET status = 'cancelled', finished_at = ?1, waiting = NULL WHERE id IN (
    SELECT id FROM jobs INDEXED BY jobs_of_run WHERE run_id = ?2 AND ordinal >= ?4 AND status = 'queued' ORDER BY ordinal LIMIT ?3)
RETURNING ordinal;

-- name: ask_to_cancel_run
UPDATE jobs INDEXED BY jobs_leased SET cancel_asked = 1 WHERE run_id = ? AND status = 'processing' AND cancel_asked = 0;

-- name: pause_run
-- Only while it is paused: somebody may have resumed it.
UPDATE jobs SET run_at = run_at + 1e12, waiting = 'paused' WHERE run_id = ?1 AND status = 'queued' AND run_at < 1e12
    AND EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND runs.status = 'paused');

-- name: unpause_run
UPDATE jobs SET run_at = run_at - 1e12, waiting = NULL WHERE run_id = ? AND status = 'queued' AND run_at >= 1e12;

-- name: run
SELECT id, pipeline, status, options, reason, is_fed, created_at, ended_at, items + children AS total,
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'complete') AS complete,
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'failed') AS failed,
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'cancelled') AS cancelled,
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'skipped') AS skipped,
    key, label, owner, children
FROM runs WHERE id = ?;

-- name: runs
SELECT id FROM runs ORDER BY id DESC LIMIT ?;

-- name: run_payloads
SELECT ordinal, stored.payload
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE run_id = ? AND ordinal >= ? AND ordinal < ? ORDER BY ordinal;

-- name: run_results
-- The jobs of a run from an ordinal on, with their results.
SELECT ordinal, id, status, stored.result AS value
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE run_id = ? AND ordinal >= ? ORDER BY ordinal LIMIT ?;

-- name: run_codes
SELECT error_code, count(*) AS jobs FROM jobs WHERE run_id = ? AND status = 'failed' GROUP BY error_code ORDER BY 2 DESC, 1;

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
SELECT name, lanes.pipeline, cron, zone, next_at, last_at, NULL AS prunes, NULL AS deleted FROM schedules JOIN lanes ON lanes.id = lane_id ORDER BY name;

-- name: due_schedules
SELECT name, lane_id, pipeline, cron, zone, payload, priority, next_at FROM schedules JOIN lanes ON lanes.id = lane_id
WHERE next_at <= ? ORDER BY name;

-- name: next_schedule_at
SELECT min(next_at) FROM schedules;

-- name: run_log
-- The attempts of a run's jobs after a place, in the order in which they ended, each with the payload of its job.
SELECT seq, attempts.started_at, ended_at, stage, attempts.attempt, outcome, code, http_status, notes,
    stored.payload
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id CROSS JOIN attempts ON attempts.job_id = jobs.id JOIN lanes ON lanes.id = attempts.lane_id
WHERE run_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3;
