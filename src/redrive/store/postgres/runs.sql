-- SPDX-License-Identifier: Apache-2.0
-- Runs and schedules.

-- part: opened_run
(SELECT currval(pg_get_serial_sequence('runs', 'id')));

-- part: payload_of_item
convert_to(item ->> 0, 'UTF8');

-- name: open_items
-- Of the run that was opened just before: $1 lane_id, $2 now, $3 the items as JSON, each with payload, key, owner and priority; $4 how
-- many bytes of a payload are kept in the job's own row. One whose key is taken is left out, and then the whole is rolled back.
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, run_id, ordinal, payload, created_at)
SELECT lanes.pipeline, lanes.id, 'queued', (item ->> 3)::bigint, $2::double precision, item ->> 1, item ->> 2, {opened_run}, place - 1,
    CASE WHEN octet_length({payload_of_item}) <= $4::bigint THEN {payload_of_item} END, $2::double precision
FROM json_array_elements($3::json) WITH ORDINALITY AS items (item, place) JOIN lanes ON lanes.id = $1::bigint ORDER BY place
ON CONFLICT DO NOTHING;

-- name: open_values
-- $1 the items as JSON; $2 as above
INSERT INTO job_values (job_id, dispatch, value)
SELECT jobs.id, 0, {payload_of_item} FROM json_array_elements($1::json) WITH ORDINALITY AS items (item, place)
    JOIN jobs ON run_id = {opened_run} AND ordinal = place - 1
WHERE octet_length({payload_of_item}) > $2::bigint;

-- name: taken_item
-- The first item whose key a job has already: its place, the key and the job.
SELECT place - 1 AS place, jobs.key, jobs.id AS job FROM json_array_elements($2::json) WITH ORDINALITY AS items (item, place)
    JOIN jobs ON jobs.pipeline = $1::text AND jobs.key = item ->> 1 AND status IN ('queued', 'processing', 'complete')
ORDER BY place LIMIT 1;

-- name: live_runs
-- Those whose status may have to be decided, at $1: all items have ended, or too many may have failed; or whose items were being
-- cancelled by somebody who is gone. The last column says that no process drives it.
SELECT id, status, options, total, complete, failed, cancelled, skipped, (driven_until <= $1::double precision)::integer AS is_free FROM (
    SELECT runs.id, runs.status, options, is_fed, driven_until, items + children AS total, ended, complete, failed, cancelled, skipped
    FROM runs CROSS JOIN LATERAL (SELECT coalesce(sum(jobs), 0)::bigint AS ended,
            coalesce(sum(jobs) FILTER (WHERE tallies.status = 'complete'), 0)::bigint AS complete,
            coalesce(sum(jobs) FILTER (WHERE tallies.status = 'failed'), 0)::bigint AS failed,
            coalesce(sum(jobs) FILTER (WHERE tallies.status = 'cancelled'), 0)::bigint AS cancelled,
            coalesce(sum(jobs) FILTER (WHERE tallies.status = 'skipped'), 0)::bigint AS skipped
        FROM tallies WHERE run_id = runs.id) AS tallied
    WHERE ended_at IS NULL AND status <> 'paused') AS live
WHERE (ended >= total AND driven_until <= $1::double precision AND (is_fed = 1 OR status IN ('cancelled', 'aborted')))
    OR (ended < total AND (status = 'running' OR (status = 'aborted' AND driven_until > 0 AND driven_until <= $1::double precision)))
ORDER BY id;

-- name: run_log
-- The attempts of a run's jobs after a place, in the order in which they ended, each with the payload of its job; no further than
-- everything is visible.
SELECT seq, started_at, ended_at, stage, attempt, outcome, code, http_status, notes, payload
FROM run_log_after($1::bigint, $2::bigint, $3::bigint);
