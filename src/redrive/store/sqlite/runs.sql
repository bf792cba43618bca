-- SPDX-License-Identifier: Apache-2.0
-- Runs and schedules.

-- part: opened_run
(SELECT max(id) FROM runs);

-- name: open_items
-- Of the run that was opened just before: ?1 lane_id, ?2 now, ?3 the items as JSON, each with payload, key, owner and priority; ?4 how
-- many bytes of a payload are kept in the job's own row. One whose key is taken is left out, and then the whole is rolled back.
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, run_id, ordinal, payload, created_at)
SELECT lanes.pipeline, lanes.id, 'queued', item.value ->> 3, ?2, item.value ->> 1, item.value ->> 2, {opened_run}, item.key,
    CASE WHEN length(CAST(item.value ->> 0 AS BLOB)) <= ?4 THEN CAST(item.value ->> 0 AS BLOB) END, ?2
FROM json_each(?3) AS item CROSS JOIN lanes ON lanes.id = ?1 WHERE true ON CONFLICT DO NOTHING;

-- name: open_values
-- ?1 the items as JSON; ?2 as above
INSERT INTO job_values (job_id, dispatch, value)
SELECT jobs.id, 0, CAST(item.value ->> 0 AS BLOB) FROM json_each(?1) AS item
    CROSS JOIN jobs ON run_id = {opened_run} AND ordinal = item.key
WHERE length(CAST(item.value ->> 0 AS BLOB)) > ?2;

-- name: taken_item
-- The first item whose key a job has already: its place, the key and the job.
SELECT item.key AS place, jobs.key, jobs.id AS job FROM json_each(?2) AS item
    JOIN jobs ON jobs.pipeline = ?1 AND jobs.key = item.value ->> 1 AND status IN ('queued', 'processing', 'complete')
ORDER BY item.key LIMIT 1;

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

-- name: run_log
-- The attempts of a run's jobs after a place, in the order in which they ended, each with the payload of its job.
SELECT seq, attempts.started_at, ended_at, stage, attempts.attempt, outcome, code, http_status, notes,
    stored.payload
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id CROSS JOIN attempts ON attempts.job_id = jobs.id JOIN lanes ON lanes.id = attempts.lane_id
WHERE run_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3;
