-- SPDX-License-Identifier: Apache-2.0
-- Workers and their leases: heartbeats, claiming, returning jobs, what is due; lanes and breakers.

-- name: start_worker
INSERT INTO workers (id, host, process, pipelines, concurrency, started_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;

-- name: renew
UPDATE workers SET expires_at = ? WHERE id = ?;

-- name: cancel_asked
SELECT id FROM jobs WHERE worker_id = ? AND status = 'processing' AND cancel_asked = 1;

-- name: progress
UPDATE jobs SET progress = ? WHERE id = ? AND worker_id = ? AND status = 'processing' AND dispatch = ?;

-- name: return_jobs
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN last_attempt_at END, lease_token = NULL, worker_id = NULL, waiting = NULL
WHERE worker_id = ? AND status = 'processing';

-- name: return_job
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN last_attempt_at END, lease_token = NULL, worker_id = NULL, waiting = NULL
WHERE id = ? AND lease_token = ? AND dispatch = ?;

-- name: delete_worker
DELETE FROM workers WHERE id = ?;

-- name: dead_workers
SELECT id FROM workers WHERE expires_at < ?;

-- name: insert_crashed_attempts
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned, decision)
SELECT id, dispatch, lane_id, round, attempt, worker_id, last_attempt_at, ?, 'crashed', 0, '{"kind":"ended","reason":"worker_lost"}'
FROM jobs WHERE worker_id = ? AND status = 'processing';

-- name: return_crashed_jobs
UPDATE jobs SET status = CASE WHEN cancel_asked THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked THEN last_attempt_at END, lease_token = NULL, worker_id = NULL,
    waiting = CASE WHEN cancel_asked THEN NULL ELSE 'crashed' END, suspect_count = suspect_count + 1
WHERE worker_id = ? AND status = 'processing';

-- name: workers
SELECT id, host, process, pipelines, concurrency, started_at, expires_at, coalesce(leased, 0) AS leased
FROM workers LEFT JOIN (SELECT worker_id, count(*) AS leased FROM jobs WHERE status = 'processing' GROUP BY worker_id) ON worker_id = id
ORDER BY started_at;

-- name: lanes
SELECT lanes.id, pipeline, stage, position, paused_at,
    (SELECT count(*) FROM jobs WHERE lane_id = lanes.id AND status = 'queued') AS queued,
    (SELECT count(*) FROM jobs WHERE lane_id = lanes.id AND status = 'processing') AS processing
FROM lanes ORDER BY pipeline, position;

-- name: lane_names
-- Without their jobs: counting those takes as long as there are many.
SELECT pipeline, stage FROM lanes ORDER BY pipeline, position;

-- name: stranded
-- Queued jobs of some pipelines in lanes that are not among the served ones.
SELECT lanes.pipeline, lanes.stage, count(*) AS jobs FROM lanes CROSS JOIN jobs ON jobs.lane_id = lanes.id AND jobs.status = 'queued'
WHERE lanes.pipeline IN (SELECT value FROM json_each(?1)) AND lanes.id NOT IN (SELECT value FROM json_each(?2))
GROUP BY lanes.id ORDER BY lanes.pipeline, lanes.position;

-- name: paused
SELECT id FROM lanes WHERE paused_at IS NOT NULL;

-- name: claim
-- One probe of the index per priority: jobs that are not due yet are never read, however many there are.
UPDATE jobs SET status = 'processing', lease_token = ?1, worker_id = ?2, dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, ?3), last_attempt_at = ?3
WHERE id IN (
    SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 0 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 1 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 2 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 3 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 4 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 5 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 6 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 7 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 8 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key IS NULL AND status = 'queued' AND priority = 9 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    LIMIT ?5
);

-- name: claim_of_key
-- As `claim`, of one key of a lane.
UPDATE jobs SET status = 'processing', lease_token = ?1, worker_id = ?2, dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, ?3), last_attempt_at = ?3
WHERE id IN (
    SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 0 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 1 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 2 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 3 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 4 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 5 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 6 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 7 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 8 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE lane_id = ?4 AND lane_key = ?6 AND status = 'queued' AND priority = 9 AND run_at <= ?3
        ORDER BY run_at, id LIMIT ?5)
    LIMIT ?5
);

-- name: claim_job
UPDATE jobs SET status = 'processing', lease_token = ?1, worker_id = ?2, dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, ?3), last_attempt_at = ?3
WHERE id = ?5 AND lane_id = ?4 AND status = 'queued' AND run_at <= ?3;

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

-- name: large_value
SELECT value FROM job_values WHERE job_id = ? AND dispatch = ?;

-- name: before_exchange
-- All that a commit needs to know, in one step: between two steps every other thread may take the interpreter.
SELECT EXISTS (SELECT 1 FROM workers WHERE id = ?1),
    EXISTS (SELECT 1 FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND lease_token IN (?2, ?3)),
    (SELECT json_group_array(id) FROM lanes WHERE paused_at IS NOT NULL),
    (SELECT json_group_array(id) FROM jobs WHERE worker_id = ?1 AND status = 'processing' AND cancel_asked = 1);

-- name: is_known
SELECT 1 FROM workers WHERE id = ?;

-- name: next_due_at
SELECT min(at) FROM (
    SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 0
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 1
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 2
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 3
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 4
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 5
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 6
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 7
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 8
    UNION ALL SELECT min(run_at) AS at FROM jobs WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' AND priority = 9
);

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

-- name: keys_of_lane
-- Keys of a lane after one, in order, and whether each has a due job; by skipping from key to key.
WITH RECURSIVE found (lane_key, place) AS (
    SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND jobs.lane_key > ?2 ORDER BY jobs.lane_key LIMIT 1), 1
    UNION ALL
    SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = ?1 AND status = 'queued' AND jobs.lane_key > found.lane_key ORDER BY jobs.lane_key LIMIT 1), place + 1
    FROM found WHERE found.lane_key IS NOT NULL AND place < ?4)
SELECT lane_key, EXISTS (
    SELECT 1 FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) WHERE EXISTS (
        SELECT 1 FROM jobs WHERE lane_id = ?1 AND jobs.lane_key = found.lane_key AND status = 'queued' AND priority = column1
        AND run_at <= ?3)) AS is_due
FROM found WHERE lane_key IS NOT NULL;

-- name: is_all_held
-- Among the first jobs of a lane: all of them would be too many to look at again and again.
SELECT NOT EXISTS (SELECT 1 FROM (SELECT waiting FROM jobs WHERE lane_id = ? AND status = 'queued' LIMIT 1000) WHERE waiting IS NOT 'hold');

-- name: jobs_without_key
-- Jobs of a lane that have no key yet: the ones that are due first, or last; small values are read with them.
SELECT jobs.id, jobs.key, owner, priority, run_id,
    stored.input
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' ORDER BY priority, run_at, id LIMIT ?2;

-- name: last_jobs_without_key
SELECT jobs.id, jobs.key, owner, priority, run_id,
    stored.input
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE lane_id = ?1 AND lane_key IS NULL AND status = 'queued' ORDER BY priority DESC, run_at DESC, id DESC LIMIT ?2;

-- name: put_keys
-- Only while the lane is keyed by what these keys are for. With a plus in front of a column its index is not used: the jobs are found
-- by their ids.
UPDATE jobs SET lane_key = given.value ->> 1 FROM json_each(?1) AS given
WHERE jobs.id = CAST(given.value ->> 0 AS INTEGER) AND +lane_id = ?2 AND +status = 'queued' AND +lane_key IS NULL
    AND EXISTS (SELECT 1 FROM lanes WHERE id = ?2 AND keyed_by = ?3);

-- name: keys_of_jobs
SELECT id, lane_key FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND lane_key IS NOT NULL;

-- name: key_of_job
SELECT lane_key, keyed_by FROM jobs JOIN lanes ON lanes.id = lane_id WHERE jobs.id = ?;

-- name: keyed_by
SELECT keyed_by FROM lanes WHERE id = ?;

-- name: set_keyed_by
UPDATE lanes SET keyed_by = ?1 WHERE id = ?2;

-- name: drop_keys
UPDATE jobs SET lane_key = NULL WHERE lane_id = ? AND status = 'queued' AND lane_key > '';

-- name: drop_leased_keys
UPDATE jobs INDEXED BY jobs_leased SET lane_key = NULL WHERE status = 'processing' AND lane_id = ? AND lane_key > '';

-- name: limit
SELECT state FROM limits WHERE name = ? AND key = ?;

-- name: limits
SELECT name, key, state FROM limits ORDER BY name, key;

-- name: add_limit
INSERT INTO limits (name, key, state, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING;

-- name: swap_limit
UPDATE limits SET state = ?3, at = ?4 WHERE name = ?1 AND key = ?2 AND state = ?5;

-- name: drop_old_limits
-- Keys that nobody has used for long; not those of which a worker has slots that is still there, or that an operator has set.
DELETE FROM limits WHERE key <> '' AND at < ?1 AND coalesce(CAST(state AS TEXT) ->> '$.paused_until', 0) < ?1
    AND NOT CAST(state AS TEXT) ->> '$.is_paused'
    AND NOT EXISTS (SELECT 1 FROM json_each(CAST(state AS TEXT), '$.shares') AS share CROSS JOIN workers ON workers.id = share.key)
    AND coalesce(CAST(state AS TEXT) ->> '$.rate', CAST(state AS TEXT) ->> '$.burst', CAST(state AS TEXT) ->> '$.concurrency') IS NULL;

-- name: worker_ids
SELECT id FROM workers;

-- name: breaker
SELECT state FROM breakers WHERE name = ?;

-- name: breakers
SELECT name, state FROM breakers ORDER BY name;

-- name: breakers_of_keys
SELECT name, state FROM breakers WHERE name > ?1 AND name < ?2 ORDER BY name;

-- name: drop_breaker
DELETE FROM breakers WHERE name = ? AND state = ?;

-- name: add_breaker
INSERT INTO breakers (name, state) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: swap_breaker
UPDATE breakers SET state = ? WHERE name = ? AND state = ?;

-- name: add_breaker_change
INSERT INTO breaker_changes (at, breaker, before, after, cause, code, actor, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: breaker_change
SELECT id, at, breaker, before, after, cause, code, actor, reason FROM breaker_changes WHERE id = ?;

-- name: breaker_changes
SELECT id, at, breaker, before, after, cause, code, actor, reason FROM breaker_changes
WHERE id > ?1 AND (?2 IS NULL OR EXISTS (
    SELECT 1 FROM lane_breakers JOIN lanes ON lanes.id = lane_id WHERE pipeline = ?2
    AND (lane_breakers.breaker = breaker_changes.breaker
        OR substr(breaker_changes.breaker, 1, length(lane_breakers.breaker) + 1) = lane_breakers.breaker || '[')))
ORDER BY id LIMIT ?3;

-- name: latest_breaker_changes
SELECT id, at, breaker, before, after, cause, code, actor, reason FROM breaker_changes
WHERE ?1 IS NULL OR EXISTS (
    SELECT 1 FROM lane_breakers JOIN lanes ON lanes.id = lane_id WHERE pipeline = ?1
    AND (lane_breakers.breaker = breaker_changes.breaker
        OR substr(breaker_changes.breaker, 1, length(lane_breakers.breaker) + 1) = lane_breakers.breaker || '['))
ORDER BY id DESC LIMIT ?2;

-- name: last_breaker_change
SELECT coalesce(max(id), 0) FROM breaker_changes;

-- name: log_pipeline
-- Before the pipeline changes, in the same transaction: its old status, and how many of its jobs wait.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, change)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, json_object(
    'before', json_object('status',
        CASE sum(paused_at IS NOT NULL) WHEN 0 THEN 'running' WHEN count(*) THEN 'paused' ELSE 'partly paused' END),
    'after', json_object('status', ?7, 'jobs_waiting', (
        SELECT count(*) FROM jobs WHERE status = 'queued' AND lane_id IN (SELECT id FROM lanes WHERE pipeline = ?8))))
FROM lanes WHERE pipeline = ?8;

-- name: release_held
-- Jobs that wait for a breaker become due; not those whose stage asked to wait.
UPDATE jobs SET run_at = ?1 WHERE status = 'queued' AND waiting = 'hold' AND run_at > ?1 AND EXISTS (
    SELECT 1 FROM attempts WHERE attempts.job_id = jobs.id AND attempts.dispatch = jobs.dispatch
    AND json_extract(attempts.decision, '$.breaker') = ?2)
RETURNING id;

-- name: pause_lanes
UPDATE lanes SET paused_at = ? WHERE pipeline = ? AND paused_at IS NULL RETURNING id;

-- name: resume_lanes
UPDATE lanes SET paused_at = NULL WHERE pipeline = ? AND paused_at IS NOT NULL RETURNING id;
