-- SPDX-License-Identifier: Apache-2.0
-- Workers and their leases: heartbeats, claiming, returning jobs, what is due; lanes and breakers.

-- name: lease_time
-- `redrive.clock` is set by tests in virtual time.
SELECT CASE WHEN current_setting('redrive.clock', true) = 'caller' THEN $1::double precision
    ELSE extract(epoch FROM clock_timestamp())::double precision END;

-- name: snapshot
SELECT pg_current_snapshot()::text;

-- name: identity
SELECT (SELECT id FROM installations ORDER BY number DESC LIMIT 1), version, place() FROM installation;

-- name: has_dead_workers
SELECT EXISTS (SELECT 1 FROM workers WHERE expires_at < $1);

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
-- A plan that was made once is kept. No statement of a commit takes a minute, unless the server is stuck: then the commit is made again.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true), set_config('statement_timeout', '60s', true);

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
{leased}
FROM taken WHERE jobs.id = taken.id
RETURNING {claimed_columns};

-- name: claim_of_key
-- As `claim`, of one key of a lane.
WITH taken AS MATERIALIZED (
    SELECT id FROM generate_series(0, 9) AS level CROSS JOIN LATERAL (
        SELECT jobs.id FROM jobs WHERE lane_id = $4 AND lane_key = $6 AND status = 'queued' AND priority = level AND run_at <= $3
        ORDER BY run_at, jobs.id LIMIT $5 FOR UPDATE SKIP LOCKED) AS due
    LIMIT $5)
{leased}
FROM taken WHERE jobs.id = taken.id
RETURNING {claimed_columns};

-- name: claim_job
{leased}
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

-- name: swap_breakers
-- Nobody waits for a breaker that another worker is about to change: what is known about it is written with the next commit.
UPDATE breakers SET state = v.after FROM unnest($1::bytea[], $2::text[], $3::bytea[]) AS v (after, name, before)
WHERE breakers.name = v.name AND breakers.state = v.before
    AND breakers.name IN (SELECT name FROM breakers WHERE name = ANY ($2::text[]) FOR NO KEY UPDATE SKIP LOCKED)
RETURNING breakers.name;

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
    CASE WHEN (SELECT 1 FROM jobs WHERE lane_id = lane AND status = 'queued' AND lane_key > '' LIMIT 1) IS NOT NULL THEN (
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

-- name: put_keys
-- Only while the lane is keyed by what these keys are for.
UPDATE jobs SET lane_key = given.key FROM (
    SELECT (value ->> 0)::bigint AS id, value ->> 1 AS key FROM json_array_elements($1::json) ORDER BY 1) AS given
WHERE jobs.id = given.id AND lane_id = $2 AND status = 'queued' AND lane_key IS NULL
    AND EXISTS (SELECT 1 FROM lanes WHERE id = $2 AND keyed_by = $3);

-- name: drop_old_limits
-- Keys that nobody has used for long; not those of which a worker has slots that is still there, or that an operator has set.
DELETE FROM limits WHERE key <> '' AND at < $1 AND coalesce((text_of(state)::jsonb ->> 'paused_until')::double precision, 0) < $1
    AND NOT EXISTS (SELECT 1 FROM jsonb_each(text_of(state)::jsonb -> 'shares') AS share JOIN workers ON workers.id = share.key)
    AND NOT coalesce((text_of(state)::jsonb ->> 'is_paused')::boolean, false)
    AND coalesce(text_of(state)::jsonb ->> 'rate', text_of(state)::jsonb ->> 'burst', text_of(state)::jsonb ->> 'concurrency') IS NULL;
