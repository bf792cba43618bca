-- SPDX-License-Identifier: Apache-2.0
-- Export and import of dead letters.

-- name: installation
SELECT id FROM installations ORDER BY number DESC LIMIT 1;

-- name: installations
-- The present one first.
SELECT id, first_job, first_letter FROM installations ORDER BY number DESC;

-- name: secret
-- The key of hashes of values. Apart from the rest: not everybody who needs that may read it.
SELECT secret FROM installations ORDER BY number DESC LIMIT 1;

-- name: exported_letters
SELECT {letter_columns} FROM letters letter JOIN lanes ON lanes.id = letter.lane_id WHERE letter.id {in_ids} ORDER BY letter.id;

-- name: exported_jobs
SELECT letter.id AS letter, lanes.position, jobs.status, jobs.priority, jobs.created_at, jobs.erased_at, jobs.origin, jobs.restarts
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id JOIN lanes ON lanes.id = letter.lane_id WHERE letter.id {in_ids};

-- name: exported_values
-- The payload of a job, and the input of its present stage; that one is NULL while it is the payload.
SELECT stored.payload, CASE WHEN jobs.input IS NOT NULL OR input_from > 0 THEN stored.input END AS input
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id WHERE id = $1::bigint;

-- name: exported_edits
-- Those a replay may start with: of the letter itself, and of the payload in earlier rounds, which holds for every later restart.
SELECT part, before, after, at, actor FROM edits
WHERE job_id = $1::bigint AND (letter_id = $2::bigint OR (part = 'payload' AND letter_id < $2::bigint)) AND after IS NOT NULL ORDER BY id;

-- name: pipelines_of_letters
SELECT DISTINCT pipeline FROM dead_letters letter JOIN lanes ON lanes.id = lane_id WHERE letter.id {in_ids} ORDER BY pipeline;

-- name: known_imports
SELECT letter FROM imports WHERE origin = $1::text AND letter = ANY (ARRAY(SELECT json_array_elements_text($2::json)::bigint));

-- name: import_of_job
SELECT origin, letter, at, actor, job, attempts FROM imports WHERE job_id = $1::bigint;

-- name: import_lane
-- One that is there keeps its place among its neighbours.
INSERT INTO lanes (pipeline, stage, position, paused_at)
VALUES ($1::text, $2::text, $3::bigint, (SELECT max(paused_at) FROM lanes WHERE pipeline = $1::text)) ON CONFLICT DO NOTHING;

-- name: import_job
-- Made queued and failed right after it, in one transaction, because only moving a job counts it.
-- Its dispatch is one beyond that of its input, so that there is room for the value of an edit.
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, payload, input, input_from, dispatch, created_at, erased_at,
    origin, restarts)
SELECT $1::text, id, 'queued', $3::bigint, $4::double precision, $5::text, $6::text, $7::bytea, $8::bytea, $9::bigint, 2,
    $10::double precision, $11::double precision, $12::text, $13::bigint
FROM lanes WHERE pipeline = $1::text AND stage = $2::text;

-- name: import_mark
INSERT INTO imports (origin, letter, job_id, at, actor, job, attempts)
VALUES ($1::text, $2::bigint, (SELECT currval(pg_get_serial_sequence('jobs', 'id'))), $3::double precision, $4::text, $5::bigint, $6::text);

-- name: import_value
INSERT INTO job_values (job_id, dispatch, value)
SELECT job_id, $3::bigint, $4::bytea FROM imports WHERE origin = $1::text AND letter = $2::bigint;

-- name: import_failure
UPDATE jobs SET status = 'failed', error_code = $3::text, error_message = $4::text, finished_at = $5::double precision
WHERE id = (SELECT job_id FROM imports WHERE origin = $1::text AND letter = $2::bigint);

-- name: import_group
INSERT INTO letter_groups (fingerprint, lane_id, code, category, exception, first_at, last_at)
SELECT $3::text, id, $4::text, $5::text, $6::text, $7::double precision, $8::double precision
FROM lanes WHERE pipeline = $1::text AND stage = $2::text
ON CONFLICT (fingerprint, lane_id) DO UPDATE SET first_at = least(letter_groups.first_at, excluded.first_at),
    last_at = greatest(letter_groups.last_at, excluded.last_at);

-- name: import_letter
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, owner, key, first_failure_at, last_failure_at)
SELECT jobs.id, jobs.lane_id, letter_groups.id, 1, 'open', owner, key, $4::double precision, $5::double precision
FROM imports JOIN jobs ON jobs.id = job_id JOIN letter_groups ON letter_groups.lane_id = jobs.lane_id AND fingerprint = $3::text
WHERE imports.origin = $1::text AND letter = $2::bigint;

-- name: import_facts
INSERT INTO letter_facts (letter_id, code, category, is_retryable, exception, reason, message, context, stack)
VALUES ((SELECT currval(pg_get_serial_sequence('dead_letters', 'id'))), $1::text, $2::text, $3::integer, $4::text, $5::text, $6::text, $7::bytea,
    $8::text);

-- name: import_notices
INSERT INTO outbox (lane_id, job_id, dispatch, letter_id, event, state, recipient, at, due_at)
SELECT dead_letters.lane_id, imports.job_id, 0, dead_letters.id, 'imported', dead_letters.state, recipient, imports.at, imports.at
FROM imports JOIN dead_letters ON dead_letters.job_id = imports.job_id JOIN lanes ON lanes.id = dead_letters.lane_id
    JOIN listeners ON topic = 'letters' AND listeners.pipeline = lanes.pipeline WHERE imports.origin = $1::text AND letter = $2::bigint;

-- name: import_edit
INSERT INTO edits (letter_id, job_id, part, before, after, at, actor)
SELECT dead_letters.id, imports.job_id, $3::text, $4::bytea, $5::bytea, $6::double precision, $7::text
FROM imports JOIN dead_letters ON dead_letters.job_id = imports.job_id WHERE imports.origin = $1::text AND letter = $2::bigint;
