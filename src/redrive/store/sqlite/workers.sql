-- SPDX-License-Identifier: Apache-2.0
-- Workers and their leases: heartbeats, claiming, returning jobs, what is due; lanes and breakers.

-- name: lease_time
SELECT ?1;

-- each priority: due_jobs
SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = {priority} AND run_at <= ?3
    ORDER BY run_at, id LIMIT ?5)

-- each priority: due_jobs_of_key
SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = {priority} AND run_at <= ?3
    ORDER BY run_at, id LIMIT ?5)

-- name: claim
-- One probe of the index per priority: jobs that are not due yet are never read, however many there are.
{leased} WHERE id IN ({due_jobs} LIMIT ?5);

-- name: claim_of_key
-- As `claim`, of one key of a lane.
{leased} WHERE id IN ({due_jobs_of_key} LIMIT ?5);

-- name: claim_job
{leased} WHERE id = ?5 AND lane_id = ?4 AND status = 'queued' AND run_at <= ?3;

-- name: probe_candidates
-- A few due jobs of every priority, from an instant on.
SELECT jobs.priority, jobs.owner, jobs.id, jobs.run_at FROM json_each('[0,1,2,3,4,5,6,7,8,9]') level CROSS JOIN jobs ON jobs.id IN (
    SELECT id FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = level.value AND run_at <= ?2
        AND run_at >= ?3 ORDER BY run_at, id LIMIT 50)
ORDER BY jobs.priority, jobs.run_at, jobs.id;

-- name: probe_candidates_of_keys
SELECT jobs.priority, jobs.owner, jobs.id, jobs.run_at FROM json_each('[0,1,2,3,4,5,6,7,8,9]') level CROSS JOIN json_each(?4) AS given
    CROSS JOIN jobs ON jobs.id IN (
        SELECT id FROM jobs WHERE lane_id = ?1 AND lane_key = given.value AND status = 'queued' AND priority = level.value
            AND run_at <= ?2 AND run_at >= ?3 ORDER BY run_at, id LIMIT 10)
ORDER BY jobs.priority, jobs.run_at, jobs.id;

-- name: claimed
-- All rows as one text: the rows of a cursor are fetched one by one, and any other thread may take the interpreter in between.
-- A value may be anything. The number of rows, and the token at the end of each, which no value can know, show whether one reads as more
-- than itself; as bytes, because it need not be text.
SELECT count(*), CAST(group_concat(format('[%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%s,%s,%s,%s,%s,%d]', priority, run_at * 1000000, id, dispatch,
    lane_id, attempt, round, snoozes, suspect_count, crash_count, restarts, cancel_asked,
    CASE WHEN input IS NULL AND (input_from > 0 OR payload IS NULL) THEN input_from ELSE -1 END,
    coalesce(expires_at, 'null'), coalesce(codes, 'null'),
    CASE WHEN coalesce(key, owner, run_id, origin) IS NULL THEN 'null' ELSE json_array(key, owner, run_id, origin) END,
    CASE WHEN input IS NULL AND input_from = 0 THEN 'null' ELSE coalesce(payload, 'false') END,
    CASE WHEN input IS NOT NULL THEN input WHEN input_from = 0 AND payload IS NOT NULL THEN payload ELSE 'null' END, lease_token)) AS BLOB)
FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND lease_token IN (?2, ?3);

-- name: claimed_rows
SELECT id, lease_token, dispatch, lane_id, attempt, round, snoozes, suspect_count, crash_count, restarts, cancel_asked, expires_at,
    CAST(codes AS BLOB),
    CAST(CASE WHEN input IS NOT NULL THEN input WHEN input_from = 0 AND payload IS NOT NULL THEN payload
    ELSE coalesce((SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = input_from), '') END AS BLOB),
    CAST(CASE WHEN input IS NOT NULL OR input_from > 0
    THEN coalesce(payload, (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = 0)) END AS BLOB),
    CASE WHEN coalesce(key, owner, run_id, origin) IS NOT NULL THEN CAST(json_array(key, owner, run_id, origin) AS BLOB) END
FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND lease_token IN (?2, ?3) ORDER BY priority, run_at, id;

-- name: before_exchange
-- All that a commit needs to know, in one step: between two steps every other thread may take the interpreter.
SELECT EXISTS (SELECT 1 FROM workers WHERE id = ?1),
    EXISTS (SELECT 1 FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND lease_token IN (?2, ?3)),
    (SELECT json_group_array(id) FROM lanes WHERE paused_at IS NOT NULL),
    (SELECT json_group_array(id) FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND cancel_asked = 1);

-- each priority: first_due
SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = {priority}

-- name: next_due_at
SELECT min(at) FROM ({first_due});

-- name: upcoming
-- One probe of the index per lane and priority, as in `next_due_at`. A lane with keys: of its first keys; with more of them, at once.
SELECT lane.value,
    (SELECT min((SELECT min(run_at) FROM jobs WHERE lane_id = lane.value AND lane_key IS NULL AND status = 'queued' AND priority = column1))
        FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))),
    (SELECT count(*) FROM jobs WHERE status = 'processing' AND lane_id = lane.value),
    (SELECT json_group_array(id) FROM lanes WHERE paused_at IS NOT NULL),
    CASE WHEN EXISTS (SELECT 1 FROM jobs WHERE lane_id = lane.value AND status = 'queued' AND lane_key > '') THEN (
        WITH RECURSIVE found (lane_key, place) AS (
            SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = lane.value AND status = 'queued' AND jobs.lane_key > '' ORDER BY jobs.lane_key LIMIT 1), 1
            UNION ALL
            SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = lane.value AND status = 'queued' AND jobs.lane_key > found.lane_key ORDER BY jobs.lane_key LIMIT 1),
                place + 1
            FROM found WHERE found.lane_key IS NOT NULL AND place <= 100)
        SELECT min(CASE WHEN place > 100 THEN 0 ELSE (
            SELECT min((SELECT min(run_at) FROM jobs WHERE lane_id = lane.value AND jobs.lane_key = found.lane_key AND status = 'queued'
                AND priority = column1)) FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))) END)
        FROM found WHERE lane_key IS NOT NULL) END
FROM json_each(?) AS lane;

-- name: put_keys
-- Only while the lane is keyed by what these keys are for. With a plus in front of a column its index is not used: the jobs are found
-- by their ids.
UPDATE jobs SET lane_key = given.value ->> 1 FROM json_each(?1) AS given
WHERE jobs.id = CAST(given.value ->> 0 AS INTEGER) AND +lane_id = ?2 AND +status = 'queued' AND +lane_key IS NULL
    AND EXISTS (SELECT 1 FROM lanes WHERE id = ?2 AND keyed_by = ?3);

-- name: drop_old_limits
-- Keys that nobody has used for long; not those of which a worker has slots that is still there, or that an operator has set.
DELETE FROM limits WHERE key <> '' AND at < ?1 AND coalesce(CAST(state AS TEXT) ->> '$.paused_until', 0) < ?1
    AND NOT CAST(state AS TEXT) ->> '$.is_paused'
    AND NOT EXISTS (SELECT 1 FROM json_each(CAST(state AS TEXT), '$.shares') AS share CROSS JOIN workers ON workers.id = share.key)
    AND coalesce(CAST(state AS TEXT) ->> '$.rate', CAST(state AS TEXT) ->> '$.burst', CAST(state AS TEXT) ->> '$.concurrency') IS NULL;
