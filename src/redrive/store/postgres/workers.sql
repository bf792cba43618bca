-- SPDX-License-Identifier: Apache-2.0
-- Workers and their leases: heartbeats, claiming, returning jobs, what is due; lanes and breakers.

-- name: clock
SELECT extract(epoch FROM clock_timestamp())::double precision;

-- name: snapshot
SELECT pg_current_snapshot()::text;

-- name: identity
SELECT (SELECT id FROM installations ORDER BY number DESC LIMIT 1), version, place() FROM installation;

-- name: start_worker
INSERT INTO workers (id, host, process, pipelines, concurrency, started_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at;

-- name: fold_tallies
-- Counters of connections that have gone are added to those of part 0.
WITH gone AS (DELETE FROM tallies WHERE (run_id, lane_id, status, part) IN (
        SELECT run_id, lane_id, status, part FROM tallies WHERE part <> 0 AND NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = part)
        FOR UPDATE SKIP LOCKED)
    RETURNING run_id, lane_id, status, jobs, pruned)
INSERT INTO tallies (run_id, lane_id, status, jobs, pruned, part)
SELECT run_id, lane_id, status, sum(jobs), sum(pruned), 0 FROM gone GROUP BY run_id, lane_id, status ORDER BY run_id, lane_id, status
ON CONFLICT (run_id, lane_id, status, part) DO UPDATE SET jobs = tallies.jobs + excluded.jobs, pruned = tallies.pruned + excluded.pruned;

-- name: fold_letter_tallies
WITH gone AS (DELETE FROM letter_tallies WHERE (replay_id, group_id, standing, part) IN (
        SELECT replay_id, group_id, standing, part FROM letter_tallies WHERE part <> 0 AND NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = part)
        FOR UPDATE SKIP LOCKED)
    RETURNING replay_id, group_id, standing, letters, pruned)
INSERT INTO letter_tallies (replay_id, group_id, standing, letters, pruned, part)
SELECT replay_id, group_id, standing, sum(letters), sum(pruned), 0 FROM gone GROUP BY replay_id, group_id, standing ORDER BY replay_id, group_id, standing
ON CONFLICT (replay_id, group_id, standing, part) DO UPDATE SET letters = letter_tallies.letters + excluded.letters, pruned = letter_tallies.pruned + excluded.pruned;

-- name: fold_letter_trend
WITH gone AS (DELETE FROM letter_trend WHERE (group_id, hour, part) IN (
        SELECT group_id, hour, part FROM letter_trend WHERE part <> 0 AND NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = part)
        FOR UPDATE SKIP LOCKED)
    RETURNING group_id, hour, letters)
INSERT INTO letter_trend (group_id, hour, letters, part)
SELECT group_id, hour, sum(letters), 0 FROM gone GROUP BY group_id, hour ORDER BY group_id, hour
ON CONFLICT (group_id, hour, part) DO UPDATE SET letters = letter_trend.letters + excluded.letters;

-- name: renew
UPDATE workers SET expires_at = $1 WHERE id = $2;

-- name: cancel_asked
SELECT id FROM jobs WHERE worker_id = $1 AND status = 'processing' AND cancel_asked = 1;

-- name: progress
UPDATE jobs SET progress = $1 WHERE id = $2 AND worker_id = $3 AND status = 'processing' AND dispatch = $4;

-- name: return_jobs
UPDATE jobs SET status = CASE WHEN cancel_asked = 1 THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked = 1 THEN last_attempt_at END, lease_token = NULL, worker_id = NULL, waiting = NULL
WHERE worker_id = $1 AND status = 'processing';

-- name: return_job
UPDATE jobs SET status = CASE WHEN cancel_asked = 1 THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked = 1 THEN last_attempt_at END, lease_token = NULL, worker_id = NULL, waiting = NULL
WHERE id = $1 AND lease_token = $2 AND dispatch = $3;

-- name: delete_worker
DELETE FROM workers WHERE id = $1;

-- name: dead_workers
-- Not one that is just committing.
SELECT id FROM workers WHERE expires_at < $1 ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: has_dead_workers
SELECT EXISTS (SELECT 1 FROM workers WHERE expires_at < $1);

-- name: insert_crashed_attempts
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned, decision)
SELECT id, dispatch, lane_id, round, attempt, worker_id, last_attempt_at, $1::double precision, 'crashed', 0, '{"kind":"ended","reason":"worker_lost"}'
FROM jobs WHERE worker_id = $2 AND status = 'processing';

-- name: return_crashed_jobs
UPDATE jobs SET status = CASE WHEN cancel_asked = 1 THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_asked = 1 THEN last_attempt_at END, lease_token = NULL, worker_id = NULL,
    waiting = CASE WHEN cancel_asked = 1 THEN NULL ELSE 'crashed' END, suspect_count = suspect_count + 1
WHERE worker_id = $1 AND status = 'processing';

-- name: workers
SELECT id, host, process, pipelines, concurrency, started_at, expires_at, coalesce(leased, 0) AS leased
FROM workers LEFT JOIN (SELECT worker_id, count(*) AS leased FROM jobs WHERE status = 'processing' GROUP BY worker_id) AS held ON worker_id = id
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
SELECT lanes.pipeline, lanes.stage, count(*) AS jobs FROM lanes JOIN jobs ON jobs.lane_id = lanes.id AND jobs.status = 'queued'
WHERE lanes.pipeline IN (SELECT json_array_elements_text($1::json))
    AND lanes.id NOT IN (SELECT json_array_elements_text($2::json)::bigint)
GROUP BY lanes.id ORDER BY lanes.pipeline, lanes.position;

-- name: paused
SELECT id FROM lanes WHERE paused_at IS NOT NULL;

-- part: claimed_columns
-- Large values are read with the job: one round trip, however many there are.
jobs.priority, jobs.run_at, jobs.id, jobs.lease_token, jobs.dispatch, jobs.lane_id, jobs.attempt, jobs.round, jobs.snoozes,
    jobs.suspect_count, jobs.crash_count, jobs.restarts, jobs.cancel_asked, jobs.expires_at, jobs.codes,
    coalesce(jobs.input, CASE WHEN jobs.input_from = 0 THEN jobs.payload END,
        (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = jobs.input_from), '') AS input,
    CASE WHEN jobs.input IS NOT NULL OR jobs.input_from > 0 THEN coalesce(jobs.payload,
        (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = 0), '') END AS payload,
    jobs.key, jobs.owner, jobs.run_id, jobs.origin

-- name: plan_by_index
-- For one transaction: all that a commit changes is found by an index, whatever the statistics say; they are old when they are needed most.
-- A plan that was made once is kept.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: claim
-- From the first lane first, at most so many of each, and so many in all; of each lane what comes after its mark (level, at, last). One
-- probe of the index per lane and priority: jobs that are not due yet are never read, however many there are. No row is locked that is not
-- taken, because each probe ends with the limit.
WITH taken AS MATERIALIZED (
    SELECT id FROM unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::double precision[], $8::bigint[]) WITH ORDINALITY
            AS lane (lane, room, mark, mark_at, mark_id, place)
        CROSS JOIN LATERAL (SELECT id FROM generate_series(0, 9) AS level CROSS JOIN LATERAL (
            SELECT jobs.id FROM jobs WHERE lane_id = lane AND lane_key IS NULL AND status = 'queued' AND priority = level AND run_at <= $3
                AND (run_at, jobs.id) > (CASE WHEN level = mark THEN mark_at ELSE '-Infinity' END, CASE WHEN level = mark THEN mark_id ELSE 0 END)
            ORDER BY lane_key, run_at, jobs.id LIMIT room FOR UPDATE SKIP LOCKED) AS due
        LIMIT room) AS ready
    LIMIT $9)
UPDATE jobs SET status = 'processing', lease_token = $1, worker_id = $2, dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, $3), last_attempt_at = $3
FROM taken WHERE jobs.id = taken.id
RETURNING {claimed_columns};

-- name: claim_of_key
-- As `claim`, of one key of a lane.
WITH taken AS MATERIALIZED (
    SELECT id FROM generate_series(0, 9) AS level CROSS JOIN LATERAL (
        SELECT jobs.id FROM jobs WHERE lane_id = $4 AND lane_key = $6 AND status = 'queued' AND priority = level AND run_at <= $3
        ORDER BY run_at, jobs.id LIMIT $5 FOR UPDATE SKIP LOCKED) AS due
    LIMIT $5)
UPDATE jobs SET status = 'processing', lease_token = $1, worker_id = $2, dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, $3), last_attempt_at = $3
FROM taken WHERE jobs.id = taken.id
RETURNING {claimed_columns};

-- name: claim_job
UPDATE jobs SET status = 'processing', lease_token = $1, worker_id = $2, dispatch = dispatch + 1, waiting = NULL,
    started_at = coalesce(started_at, $3), last_attempt_at = $3
WHERE id = $5 AND lane_id = $4 AND status = 'queued' AND run_at <= $3
RETURNING {claimed_columns};

-- name: probe_candidates
-- A few due jobs of every priority, from an instant on.
SELECT level AS priority, due.owner, due.id, due.run_at FROM generate_series(0, 9) AS level CROSS JOIN LATERAL (
    SELECT owner, jobs.id, run_at FROM jobs WHERE lane_id = $1 AND lane_key IS NULL AND status = 'queued' AND priority = level
        AND run_at <= $2 AND run_at >= $3 ORDER BY lane_key, run_at, jobs.id LIMIT 50) AS due
ORDER BY level, due.run_at, due.id;

-- name: probe_candidates_of_keys
SELECT level AS priority, due.owner, due.id, due.run_at
FROM generate_series(0, 9) AS level CROSS JOIN json_array_elements_text($4::json) AS given (key) CROSS JOIN LATERAL (
    SELECT owner, jobs.id, run_at FROM jobs WHERE lane_id = $1 AND lane_key = given.key AND status = 'queued' AND priority = level
        AND run_at <= $2 AND run_at >= $3 ORDER BY run_at, jobs.id LIMIT 10) AS due
ORDER BY level, due.run_at, due.id;

-- name: claimed
-- What a worker leases under a token, or under either of two.
SELECT {claimed_columns}
FROM jobs WHERE worker_id = $1 AND status = 'processing' AND lease_token IN ($2, $3);

-- name: large_value
SELECT value FROM job_values WHERE job_id = $1 AND dispatch = $2;

-- name: before_exchange
-- All that a commit needs to know, in one step. The worker's row is kept until the commit: nobody may declare it dead in between.
SELECT yes IS NOT NULL, EXISTS (SELECT 1 FROM jobs WHERE worker_id = $1 AND status = 'processing' AND lease_token IN ($2, $3)),
    (SELECT coalesce(json_agg(id ORDER BY id), '[]')::text FROM lanes WHERE paused_at IS NOT NULL),
    (SELECT coalesce(json_agg(id), '[]')::text FROM jobs WHERE worker_id = $1 AND status = 'processing' AND cancel_asked = 1)
FROM (SELECT 1) AS always LEFT JOIN (SELECT 1 AS yes FROM workers WHERE id = $1 FOR KEY SHARE) AS known ON true;

-- name: begin_exchange
-- As before_exchange, for a commit that goes by what the worker remembers: it is known, claims for the first time, and $4 are the lanes that
-- are paused.
SELECT expect(yes IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE worker_id = $1 AND status = 'processing' AND lease_token IN ($2, $3))
        AND $4::text = (SELECT coalesce(json_agg(id ORDER BY id), '[]')::text FROM lanes WHERE paused_at IS NOT NULL), 'RD002'),
    (SELECT coalesce(json_agg(id), '[]')::text FROM jobs WHERE worker_id = $1 AND status = 'processing' AND cancel_asked = 1)
FROM (SELECT 1) AS always LEFT JOIN (SELECT 1 AS yes FROM workers WHERE id = $1 FOR KEY SHARE) AS known ON true;

-- name: is_known
SELECT 1 FROM workers WHERE id = $1;

-- name: is_claimable
-- Whether an exchange without settlements has anything to do: the worker is unknown, the token has claimed before, or a job of these lanes
-- is due.
SELECT NOT EXISTS (SELECT 1 FROM workers WHERE id = $1)
    OR EXISTS (SELECT 1 FROM jobs WHERE worker_id = $1 AND status = 'processing' AND lease_token IN ($2, $3))
    OR EXISTS (
        SELECT 1 FROM unnest($4::bigint[]) AS lane JOIN lanes ON lanes.id = lane AND paused_at IS NULL
            CROSS JOIN generate_series(0, 9) AS level CROSS JOIN LATERAL (
                SELECT 1 FROM jobs WHERE lane_id = lane AND lane_key IS NULL AND status = 'queued' AND priority = level AND run_at <= $5 LIMIT 1) AS due)
    OR EXISTS (SELECT 1 FROM unnest($6::bigint[]) AS lane JOIN lanes ON lanes.id = lane AND paused_at IS NULL);

-- name: upcoming
-- One probe of the index per lane and priority. A lane with keys: of its first keys; with more of them, at once.
SELECT lane,
    (SELECT min(at) FROM generate_series(0, 9) AS level CROSS JOIN LATERAL (
        SELECT run_at AS at FROM jobs WHERE lane_id = lane AND lane_key IS NULL AND status = 'queued' AND priority = level
        ORDER BY lane_key, run_at LIMIT 1) AS first),
    (SELECT count(*) FROM jobs WHERE status = 'processing' AND lane_id = lane),
    (SELECT coalesce(json_agg(id), '[]')::text FROM lanes WHERE paused_at IS NOT NULL),
    CASE WHEN EXISTS (SELECT 1 FROM jobs WHERE lane_id = lane AND status = 'queued' AND lane_key > '') THEN (
        WITH RECURSIVE found (lane_key, place) AS (
            SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = lane AND status = 'queued' AND jobs.lane_key > '' ORDER BY jobs.lane_key LIMIT 1), 1
            UNION ALL
            SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = lane AND status = 'queued' AND jobs.lane_key > found.lane_key ORDER BY jobs.lane_key LIMIT 1),
                place + 1
            FROM found WHERE found.lane_key IS NOT NULL AND place <= 100)
        SELECT min(CASE WHEN place > 100 THEN 0 ELSE (
            SELECT min(at) FROM generate_series(0, 9) AS level CROSS JOIN LATERAL (
                SELECT run_at AS at FROM jobs WHERE lane_id = lane AND jobs.lane_key = found.lane_key AND status = 'queued' AND priority = level
                ORDER BY run_at LIMIT 1) AS first) END)
        FROM found WHERE lane_key IS NOT NULL) END
FROM (SELECT json_array_elements_text($1::json)::bigint AS lane) AS given;

-- name: keys_of_lane
-- Keys of a lane after one, in order, and whether each has a due job; by skipping from key to key.
WITH RECURSIVE found (lane_key, place) AS (
    SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = $1 AND status = 'queued' AND jobs.lane_key > $2 ORDER BY jobs.lane_key LIMIT 1), 1
    UNION ALL
    SELECT (SELECT jobs.lane_key FROM jobs WHERE lane_id = $1 AND status = 'queued' AND jobs.lane_key > found.lane_key ORDER BY jobs.lane_key LIMIT 1), place + 1
    FROM found WHERE found.lane_key IS NOT NULL AND place < $4)
SELECT lane_key, EXISTS (
    SELECT 1 FROM generate_series(0, 9) AS level WHERE EXISTS (
        SELECT 1 FROM jobs WHERE lane_id = $1 AND jobs.lane_key = found.lane_key AND status = 'queued' AND priority = level
        AND run_at <= $3)) AS is_due
FROM found WHERE lane_key IS NOT NULL;

-- name: is_all_held
-- Among the first jobs of a lane: all of them would be too many to look at again and again.
SELECT NOT EXISTS (SELECT 1 FROM (SELECT waiting FROM jobs WHERE lane_id = $1 AND status = 'queued' LIMIT 1000) AS first WHERE waiting IS DISTINCT FROM 'hold');

-- name: jobs_without_key
-- Jobs of a lane that have no key yet: the ones that are due first, or last; small values are read with them.
SELECT jobs.id, jobs.key, owner, priority, run_id,
    stored.input
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE lane_id = $1 AND lane_key IS NULL AND status = 'queued' ORDER BY priority, run_at, id LIMIT $2;

-- name: last_jobs_without_key
SELECT jobs.id, jobs.key, owner, priority, run_id,
    stored.input
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE lane_id = $1 AND lane_key IS NULL AND status = 'queued' ORDER BY priority DESC, run_at DESC, id DESC LIMIT $2;

-- name: put_keys
-- Only while the lane is keyed by what these keys are for.
UPDATE jobs SET lane_key = given.key FROM (
    SELECT (value ->> 0)::bigint AS id, value ->> 1 AS key FROM json_array_elements($1::json) ORDER BY 1) AS given
WHERE jobs.id = given.id AND lane_id = $2 AND status = 'queued' AND lane_key IS NULL
    AND EXISTS (SELECT 1 FROM lanes WHERE id = $2 AND keyed_by = $3);

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
UPDATE jobs SET lane_key = NULL WHERE status = 'processing' AND lane_id = $1 AND lane_key > '';

-- name: limit
SELECT state FROM limits WHERE name = $1 AND key = $2;

-- name: limits
SELECT name, key, state FROM limits ORDER BY name, key;

-- name: add_limit
INSERT INTO limits (name, key, state, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: swap_limit
UPDATE limits SET state = $3, at = $4 WHERE name = $1 AND key = $2 AND state = $5;

-- name: drop_old_limits
-- Keys that nobody has used for long; not those of which a worker has slots that is still there, or that an operator has set.
DELETE FROM limits WHERE key <> '' AND at < $1 AND coalesce((text_of(state)::jsonb ->> 'paused_until')::double precision, 0) < $1
    AND NOT EXISTS (SELECT 1 FROM jsonb_each(text_of(state)::jsonb -> 'shares') AS share JOIN workers ON workers.id = share.key)
    AND NOT coalesce((text_of(state)::jsonb ->> 'is_paused')::boolean, false)
    AND coalesce(text_of(state)::jsonb ->> 'rate', text_of(state)::jsonb ->> 'burst', text_of(state)::jsonb ->> 'concurrency') IS NULL;

-- name: worker_ids
SELECT id FROM workers;

-- name: breaker
SELECT state FROM breakers WHERE name = $1;

-- name: breakers
SELECT name, state FROM breakers ORDER BY name;

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

-- name: breaker_change
SELECT id, at, breaker, before, after, cause, code, actor, reason FROM breaker_changes WHERE id = $1;

-- name: breaker_changes
SELECT id, at, breaker, before, after, cause, code, actor, reason FROM breaker_changes
WHERE id > $1 AND ($2::text IS NULL OR EXISTS (
    SELECT 1 FROM lane_breakers JOIN lanes ON lanes.id = lane_id WHERE pipeline = $2
    AND (lane_breakers.breaker = breaker_changes.breaker
        OR substr(breaker_changes.breaker, 1, length(lane_breakers.breaker) + 1) = lane_breakers.breaker || '[')))
ORDER BY id LIMIT $3;

-- name: latest_breaker_changes
SELECT id, at, breaker, before, after, cause, code, actor, reason FROM breaker_changes
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
