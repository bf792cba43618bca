-- SPDX-License-Identifier: Apache-2.0
-- Jobs: submitting them, reading one, listing many, cancelling and erasing.

-- name: insert_jobs
-- In the order of their ids; without those whose key has a job already.
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, run_id, ordinal, parent_id, expires_at, payload, created_at)
SELECT pipeline, lane_id, 'queued', priority, run_at, key, owner, run_id, ordinal, parent_id, expires_at, payload, $1
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::double precision[], $6::text[], $7::text[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::double precision[], $12::bytea[]) WITH ORDINALITY
    AS given (pipeline, lane_id, priority, run_at, key, owner, run_id, ordinal, parent_id, expires_at, payload, place)
ORDER BY place
ON CONFLICT (pipeline, key) WHERE key IS NOT NULL AND status IN ('queued', 'processing', 'complete') DO NOTHING
RETURNING id, pipeline, key;

-- name: submit_jobs
-- For those who may only submit.
SELECT submit_jobs($1::text, $2::text);

-- name: take_ids
SELECT nextval('jobs_id_seq') FROM generate_series(1, $1);

-- name: copy_jobs
COPY jobs (id, run_at, priority, pipeline, lane_id, status, owner, run_id, parent_id, expires_at, created_at, ordinal, payload)
FROM STDIN (FORMAT binary);

-- name: duplicates
-- The jobs that have these keys.
SELECT id, jobs.pipeline, jobs.key FROM unnest($1::text[], $2::text[]) AS given (pipeline, key)
    JOIN jobs ON jobs.pipeline = given.pipeline AND jobs.key = given.key AND status IN ('queued', 'processing', 'complete');

-- name: insert_values
INSERT INTO job_values (job_id, dispatch, value) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]);

-- name: insert_traces
INSERT INTO job_traces (job_id, traceparent) SELECT * FROM unnest($1::bigint[], $2::text[]);

-- name: notify
SELECT pg_notify($1, '');

-- name: traces
SELECT job_id, traceparent FROM json_array_elements_text($1::json) AS given JOIN job_traces ON job_id = given::bigint;

-- name: counts
SELECT lanes.pipeline, lanes.stage, 'queued' AS status, count(*) AS jobs FROM jobs JOIN lanes ON lanes.id = lane_id WHERE status = 'queued'
GROUP BY lanes.id
UNION ALL
SELECT lanes.pipeline, lanes.stage, 'processing', count(*) FROM jobs JOIN lanes ON lanes.id = lane_id WHERE status = 'processing'
GROUP BY lanes.id
UNION ALL
SELECT lanes.pipeline, lanes.stage, status, sum(jobs - pruned) FROM tallies JOIN lanes ON lanes.id = lane_id
GROUP BY lanes.id, status HAVING sum(jobs - pruned) > 0;

-- name: events
-- No further than everything is visible: what is committed late must not be passed over. The frontier is found first, and what is up to
-- there read afterwards.
SELECT seq, job_id AS job, dispatch, pipeline, stage, round, attempt, outcome, code, ended_at AS at, decision
FROM events_after($1, $2, $3, $4);

-- name: last_event
SELECT attempts_frontier();

-- name: erase_hashes
UPDATE letter_facts SET context = convert_to((text_of(context)::jsonb - 'input_sha256')::text, 'UTF8')
WHERE letter_id IN (SELECT id FROM dead_letters WHERE job_id = $1) AND text_of(context) LIKE '%input_sha256%';
