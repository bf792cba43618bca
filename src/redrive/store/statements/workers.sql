-- SPDX-License-Identifier: Apache-2.0
-- Workers and their leases: heartbeats, claiming, returning jobs, what is due; lanes and breakers.

-- name: start_worker
INSERT INTO workers (id, host, process, pipelines, concurrency, started_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;

-- name: renew
UPDATE workers SET expires_at = $1 WHERE id = $2;

-- name: cancel_asked
SELECT id FROM jobs WHERE worker_id = $1 AND status = 'processing' AND cancel_asked = 1;

-- name: progress
UPDATE jobs SET progress = $1 WHERE id = $2 AND worker_id = $3 AND status = 'processing' AND dispatch = $4;

-- part: returned
UPDATE jobs SET status = CASE WHEN cancel_asked = 1 THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked = 1 THEN last_attempt_at END, lease_token = NULL, worker_id = NULL

-- name: return_jobs
{returned}, waiting = NULL WHERE worker_id = $1 AND status = 'processing';

-- name: return_job
{returned}, waiting = NULL WHERE id = $1 AND lease_token = $2 AND dispatch = $3;

-- name: delete_worker
DELETE FROM workers WHERE id = $1;

-- name: dead_workers
-- Not one that is just committing.
SELECT id FROM workers WHERE expires_at < $1 ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: insert_crashed_attempts
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned, decision)
SELECT id, dispatch, lane_id, round, attempt, worker_id, last_attempt_at, $1::double precision, 'crashed', 0, '{"kind":"ended","reason":"worker_lost"}'
FROM jobs WHERE worker_id = $2 AND status = 'processing';

-- name: return_crashed_jobs
{returned}, waiting = CASE WHEN cancel_asked = 1 THEN NULL ELSE 'crashed' END, suspect_count = suspect_count + 1
WHERE worker_id = $1 AND status = 'processing';

-- name: workers
SELECT id, host, process, pipelines, concurrency, started_at, expires_at, coalesce(leased, 0) AS leased
FROM workers LEFT JOIN (SELECT worker_id, count(*) AS leased FROM jobs WHERE status = 'processing' GROUP BY worker_id) AS held ON worker_id = id
ORDER BY started_at;

-- name: lanes
SELECT lanes.id, pipeline, stage, position, paused_at,
    (SELECT count(*) FROM jobs WHERE lane_id = lanes.id AND status = 'queued') AS queued,
    (SELECT count(*) FROM jobs WHERE lane_id = lanes.id AND status = 'processing') AS processing
FROM lanes ORDER BY pipeline, position, lanes.id;

-- name: lane_names
-- Without their jobs: counting those takes as long as there are many.
SELECT pipeline, stage FROM lanes ORDER BY pipeline, position, lanes.id;

-- name: stranded
-- Queued jobs of some pipelines in lanes that are not among the served ones. Counted lane by lane: there are few such lanes, or none.
SELECT pipeline, stage, jobs FROM (
    SELECT pipeline, stage, position, (SELECT count(*) FROM jobs WHERE lane_id = lanes.id AND status = 'queued') AS jobs FROM lanes
    WHERE pipeline IN (SELECT json_array_elements_text($1::json)) AND id NOT IN (SELECT json_array_elements_text($2::json)::bigint)) AS left_out
WHERE jobs > 0 ORDER BY pipeline, position;

-- name: paused
SELECT id FROM lanes WHERE paused_at IS NOT NULL;

-- name: large_value
SELECT value FROM job_values WHERE job_id = $1 AND dispatch = $2;

-- name: is_known
SELECT 1 FROM workers WHERE id = $1;

-- name: is_all_held
-- Among the first jobs of a lane: all of them would be too many to look at again and again.
SELECT NOT EXISTS (SELECT 1 FROM (SELECT waiting FROM jobs WHERE lane_id = $1 AND status = 'queued' LIMIT 1000) AS first WHERE waiting IS DISTINCT FROM 'hold');

-- part: leased
-- What is claimed: $1 lease_token, $2 worker_id, $3 now.
UPDATE jobs SET status = 'processing', lease_token = $1, worker_id = $2, dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, $3), last_attempt_at = $3

-- name: keys_of_lane
-- Keys of a lane after one, in order, and whether each has a due job; by skipping from key to key.
WITH RECURSIVE found (lane_key, place) AS (
    SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = $1 AND status = 'queued' AND jobs.lane_key > $2 ORDER BY jobs.lane_key LIMIT 1), 1
    UNION ALL
    SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = $1 AND status = 'queued' AND jobs.lane_key > found.lane_key ORDER BY jobs.lane_key LIMIT 1), place + 1
    FROM found WHERE found.lane_key IS NOT NULL AND place < $4)
SELECT lane_key, EXISTS (
    SELECT 1 FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS level WHERE EXISTS (
        SELECT 1 FROM jobs WHERE lane_id = $1 AND jobs.lane_key = found.lane_key AND status = 'queued' AND priority = column1
        AND run_at <= $3)) AS is_due
FROM found WHERE lane_key IS NOT NULL;

-- part: without_key
-- Jobs of a lane that have no key yet; small values are read with them.
SELECT jobs.id, jobs.key, owner, priority, run_id,
    stored.input
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE lane_id = $1 AND lane_key IS NULL AND status = 'queued'

-- name: jobs_without_key
-- The ones that are due first, and last.
{without_key} ORDER BY priority, run_at, id LIMIT $2;

-- name: last_jobs_without_key
{without_key} ORDER BY priority DESC, run_at DESC, id DESC LIMIT $2;

-- name: keys_of_jobs
SELECT id, lane_key FROM jobs WHERE id IN (SELECT json_array_elements_text($1::json)::bigint) AND lane_key IS NOT NULL;

-- name: key_of_job
SELECT lane_key, keyed_by FROM jobs JOIN lanes ON lanes.id = lane_id WHERE jobs.id = $1;

-- name: keyed_by
SELECT keyed_by FROM lanes WHERE id = $1;

-- name: set_keyed_by
UPDATE lanes SET keyed_by = $1 WHERE id = $2;

-- name: drop_keys
UPDATE jobs SET lane_key = NULL WHERE lane_id = $1 AND status = 'queued' AND lane_key > '';

-- name: drop_leased_keys
UPDATE jobs /* INDEXED BY jobs_leased */ SET lane_key = NULL WHERE status = 'processing' AND lane_id = $1 AND lane_key > '';

-- name: limit
SELECT state FROM limits WHERE name = $1 AND key = $2;

-- name: limits
SELECT name, key, state FROM limits ORDER BY name, key;

-- name: add_limit
INSERT INTO limits (name, key, state, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: swap_limit
UPDATE limits SET state = $3, at = $4 WHERE name = $1 AND key = $2 AND state = $5;

-- name: worker_ids
SELECT id FROM workers;

-- name: breaker
SELECT state FROM breakers WHERE name = $1;

-- name: breakers
SELECT name, state FROM breakers ORDER BY name;

-- name: breakers_named
SELECT name, state FROM breakers WHERE name IN (SELECT json_array_elements_text($1::json));

-- name: breakers_of_keys
SELECT name, state FROM breakers WHERE name > $1 AND name < $2 ORDER BY name;

-- name: drop_breaker
DELETE FROM breakers WHERE name = $1 AND state = $2;

-- name: add_breaker
INSERT INTO breakers (name, state) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: swap_breaker
UPDATE breakers SET state = $1 WHERE name = $2 AND state = $3;

-- name: add_breaker_change
INSERT INTO breaker_changes (at, breaker, before, after, cause, code, actor, reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- part: changes
SELECT id, at, breaker, before, after, cause, code, actor, reason FROM breaker_changes

-- name: breaker_change
{changes} WHERE id = $1;

-- name: breaker_changes
{changes}
WHERE id > $1 AND ($2::text IS NULL OR EXISTS (
    SELECT 1 FROM lane_breakers JOIN lanes ON lanes.id = lane_id WHERE pipeline = $2
    AND (lane_breakers.breaker = breaker_changes.breaker
        OR substr(breaker_changes.breaker, 1, length(lane_breakers.breaker) + 1) = lane_breakers.breaker || '[')))
ORDER BY id LIMIT $3;

-- name: latest_breaker_changes
{changes}
WHERE $1::text IS NULL OR EXISTS (
    SELECT 1 FROM lane_breakers JOIN lanes ON lanes.id = lane_id WHERE pipeline = $1
    AND (lane_breakers.breaker = breaker_changes.breaker
        OR substr(breaker_changes.breaker, 1, length(lane_breakers.breaker) + 1) = lane_breakers.breaker || '['))
ORDER BY id DESC LIMIT $2;

-- name: last_breaker_change
SELECT coalesce(max(id), 0) FROM breaker_changes;

-- name: log_pipeline
-- Before the pipeline changes, in the same transaction: its old status, and how many of its jobs wait.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, change)
SELECT $1, $2, $3, $4, $5, $6, json_build_object(
    'before', json_build_object('status',
        CASE count(paused_at) WHEN 0 THEN 'running' WHEN count(*) THEN 'paused' ELSE 'partly paused' END),
    'after', json_build_object('status', $7::text, 'jobs_waiting', (
        SELECT count(*) FROM jobs WHERE status = 'queued' AND lane_id IN (SELECT id FROM lanes WHERE pipeline = $8))))::text
FROM lanes WHERE pipeline = $8;

-- name: release_held
-- Jobs that wait for a breaker become due; not those whose stage asked to wait.
UPDATE jobs SET run_at = $1 WHERE status = 'queued' AND waiting = 'hold' AND run_at > $1 AND EXISTS (
    SELECT 1 FROM attempts WHERE attempts.job_id = jobs.id AND attempts.dispatch = jobs.dispatch
    AND attempts.decision::jsonb ->> 'breaker' = $2)
RETURNING id;

-- name: pause_lanes
UPDATE lanes SET paused_at = $1 WHERE pipeline = $2 AND paused_at IS NULL RETURNING id;

-- name: resume_lanes
UPDATE lanes SET paused_at = NULL WHERE pipeline = $1 AND paused_at IS NOT NULL RETURNING id;
