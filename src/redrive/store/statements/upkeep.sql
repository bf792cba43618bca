-- SPDX-License-Identifier: Apache-2.0
-- Upkeep: health of the database and of the work, and pruning.

-- name: latest_instant
SELECT max(at) FROM (
    SELECT max(created_at) AS at FROM (SELECT created_at FROM jobs ORDER BY id DESC LIMIT 100) AS newest_jobs
    UNION ALL SELECT max(ended_at) FROM (SELECT ended_at FROM attempts ORDER BY seq DESC LIMIT 100) AS newest_attempts
    UNION ALL SELECT max(started_at) FROM workers
    UNION ALL SELECT max(at) FROM (SELECT at FROM operations ORDER BY id DESC LIMIT 100) AS newest_operations) AS latest;

-- name: ownerless_jobs
-- Leased jobs are few; to have them in order, all jobs would be read.
WITH leased AS MATERIALIZED (SELECT id, worker_id FROM jobs /* INDEXED BY jobs_leased */ WHERE status = 'processing')
SELECT id FROM leased WHERE NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = worker_id) ORDER BY id LIMIT $1::bigint;

-- name: long_running
SELECT jobs.id, lanes.pipeline, lanes.stage, last_attempt_at FROM jobs JOIN lanes ON lanes.id = lane_id
WHERE status = 'processing' AND last_attempt_at < $1::double precision ORDER BY last_attempt_at, jobs.id LIMIT $2::bigint;

-- name: due_of_lane
SELECT count(*) AS jobs, min(run_at) AS first_at FROM jobs WHERE lane_id = $1::bigint AND status = 'queued' AND run_at <= $2::double precision;

-- name: open_letters
SELECT count(*) AS letters, min(first_failure_at) AS first_at FROM dead_letters WHERE state = 'open';

-- name: wrong_letter_tallies
-- Groups whose counters differ from a recount.
SELECT group_id, state, counted, found FROM (
    SELECT group_id, state, sum(letters)::bigint AS counted FROM letters_by_group GROUP BY group_id, state) AS tallied
    FULL JOIN (SELECT group_id, state, count(*) AS found FROM dead_letters GROUP BY group_id, state) AS present USING (group_id, state)
WHERE coalesce(counted, 0) <> coalesce(found, 0) ORDER BY group_id, state LIMIT $1::bigint;

-- name: jobs_without_letter
-- Failed jobs without exactly one live letter and its facts, and jobs that have not failed with one.
SELECT jobs.id FROM jobs WHERE (status = 'failed')::integer <> (SELECT count(*) FROM letters
    WHERE job_id = jobs.id AND state IN ('open', 'triaged', 'ready', 'discarded')) ORDER BY jobs.id LIMIT $1::bigint;

-- name: prune_window
-- Looked up for each of these jobs: to find out whether one exists, all notices would be read.
SELECT id, status, finished_at, created_at, ((SELECT 1 FROM outbox WHERE job_id = jobs.id LIMIT 1) IS NOT NULL)::integer AS is_noticed
FROM jobs WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint;

-- part: pruned_jobs
-- $1 ids as JSON, $2 status, $3 finished before.
SELECT jobs.id FROM jobs /* NOT INDEXED */ WHERE jobs.id {in_ids} AND status = $2::text AND finished_at < $3::double precision;

-- name: prune_values
DELETE FROM job_values WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: prune_edits
DELETE FROM edits WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: prune_notices
DELETE FROM outbox WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: prune_letters
DELETE FROM dead_letters WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: prune_attempts
DELETE FROM attempts WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: prune_jobs
DELETE FROM jobs /* NOT INDEXED */ WHERE id {in_ids} AND status = $2::text AND finished_at < $3::double precision RETURNING id;

-- name: prunable_runs
-- A paused run may be resumed, and a run with an open job was replayed in part.
SELECT id FROM runs WHERE ended_at < $1::double precision AND status <> 'paused' AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE run_id = runs.id AND jobs.finished_at IS NULL)
ORDER BY id;

-- name: prune_run
DELETE FROM runs WHERE id = $1::bigint AND ended_at < $2::double precision AND status <> 'paused' AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE run_id = $1::bigint AND jobs.finished_at IS NULL);

-- name: prune_run_tallies
DELETE FROM tallies WHERE run_id = $1::bigint;

-- name: leave_run
UPDATE jobs SET run_id = NULL, ordinal = NULL WHERE run_id = $1::bigint;

-- name: leave_run_letters
UPDATE dead_letters SET run_id = NULL WHERE run_id = $1::bigint;

-- name: put_retention
INSERT INTO retentions (name, ages, cron, zone, next_at) VALUES ($1::text, $2::bytea, $3::text, $4::text, $5::double precision)
ON CONFLICT (name) DO UPDATE SET ages = excluded.ages, next_at = CASE
        WHEN retentions.cron = excluded.cron AND retentions.zone = excluded.zone THEN retentions.next_at ELSE excluded.next_at END,
    cron = excluded.cron, zone = excluded.zone;

-- name: retention
SELECT ages, cron, zone FROM retentions WHERE name = $1::text;

-- name: retentions
SELECT name, NULL::text AS pipeline, cron, zone, next_at, last_at, ages AS prunes, deleted FROM retentions ORDER BY name;

-- name: due_retentions
SELECT name, ages, cron, zone, next_at FROM retentions WHERE next_at <= $1::double precision ORDER BY name;

-- name: drive_retention
UPDATE retentions SET driver = $1::text, driven_until = $2::double precision
WHERE name = $3::text AND next_at = $4::double precision AND (driver IS NULL OR driver = $1::text OR driven_until < $5::double precision);

-- name: end_retention
UPDATE retentions SET next_at = $1::double precision, last_at = $2::double precision, deleted = $3::text, driver = NULL, driven_until = 0
WHERE name = $4::text AND driver = $5::text;

-- name: drop_retention
DELETE FROM retentions WHERE name = $1::text;
