-- SPDX-License-Identifier: Apache-2.0
-- Jobs: submitting them, reading one, listing many, cancelling and erasing.

-- name: add_lane
INSERT INTO lanes (pipeline, stage, position, paused_at)
VALUES ($1::text, $2, $3, (SELECT max(paused_at) FROM lanes WHERE pipeline = $1))
ON CONFLICT (pipeline, stage) DO UPDATE SET position = excluded.position RETURNING id;

-- name: lanes_of
SELECT id, stage, position FROM lanes WHERE pipeline = $1::text;

-- name: count_items
UPDATE runs SET items = $1 WHERE id = $2 AND items < $1;

-- name: insert_value
INSERT INTO job_values (job_id, dispatch, value) VALUES ($1, $2, $3);

-- name: duplicate
SELECT id FROM jobs WHERE pipeline = $1 AND key = $2 AND status IN ('queued', 'processing', 'complete');

-- part: facts
-- Retries by hand are counted in the operator log, which is never pruned: a round may also be a replay.
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, error_code, error_message, key, owner, run_id AS run, priority, waiting, run_at,
    created_at, started_at, finished_at, progress, round, dispatch, parent_id AS parent, cancel_asked AS is_cancel_asked, worker_id AS worker, expires_at, erased_at,
    last_attempt_at, CASE WHEN round = 1 THEN 0 ELSE (SELECT count(*) FROM dead_letters
        JOIN operations ON subject_kind = 'letter' AND subject_id = CAST(dead_letters.id AS TEXT)
        WHERE job_id = jobs.id AND verb IN ('retry', 'restart')) END AS manual_retries

-- name: job
{facts} FROM jobs JOIN lanes ON lanes.id = lane_id WHERE jobs.id = $1;

-- name: jobs_of_owner
{facts} FROM jobs /* INDEXED BY jobs_of_owner */ /* CROSS */ JOIN lanes ON lanes.id = lane_id
WHERE owner = $1 AND jobs.pipeline = $2 AND jobs.id < $3 ORDER BY jobs.id DESC LIMIT $4;

-- name: free_key
UPDATE jobs SET key = NULL WHERE id = $1 AND status = 'complete' AND key IS NOT NULL;

-- name: bury_job
-- A job that failed before it could be queued. Made queued and failed right after it, because only moving a job counts it. Each of the
-- statements that bury a job finds its row by what the one before it has inserted; all are one transaction.
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, owner, payload, dispatch, created_at, started_at, last_attempt_at)
SELECT pipeline, id, 'queued', 5, $2::double precision, $3::text, $4::bytea, 1, $2, $2, $2 FROM lanes WHERE id = $1;

-- name: bury_failure
UPDATE jobs SET status = 'failed', error_code = $2, error_message = $3, finished_at = $1 WHERE id = (SELECT currval(pg_get_serial_sequence('jobs', 'id')));

-- name: bury_attempt
INSERT INTO attempts (job_id, dispatch, lane_id, round, attempt, worker_id, started_at, ended_at, outcome, burned, code, exception, message,
    decision)
SELECT id, 1, lane_id, 1, 1, $1::text, created_at, created_at, 'dead', 1, error_code, $2::text, error_message, $3::text FROM jobs
WHERE id = (SELECT currval(pg_get_serial_sequence('jobs', 'id')));

-- name: bury_letter
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, owner, first_failure_at, last_failure_at)
SELECT jobs.id, jobs.lane_id, letter_groups.id, 1, 'open', owner, ended_at, ended_at
FROM attempts JOIN jobs ON jobs.id = job_id JOIN letter_groups ON letter_groups.lane_id = jobs.lane_id AND fingerprint = $1
WHERE seq = (SELECT currval(pg_get_serial_sequence('attempts', 'seq'))) RETURNING job_id;

-- name: bury_notices
INSERT INTO outbox (lane_id, job_id, dispatch, letter_id, event, state, recipient, at, due_at)
SELECT lane_id, job_id, 1, dead_letters.id, 'born', state, recipient, last_failure_at, last_failure_at
FROM dead_letters JOIN lanes ON lanes.id = lane_id JOIN listeners ON topic = 'letters' AND listeners.pipeline = lanes.pipeline
WHERE dead_letters.id = (SELECT currval(pg_get_serial_sequence('dead_letters', 'id')));

-- name: result
SELECT status, stored.result AS value
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id WHERE id = $1;

-- name: attempts
SELECT dispatch, lanes.stage, round, attempt, outcome, burned, code, message, http_status, decision, notes, worker_id AS worker,
    started_at, ended_at, config, exception
FROM attempts JOIN lanes ON lanes.id = lane_id WHERE job_id = $1 ORDER BY dispatch;

-- name: recount
SELECT lanes.pipeline, lanes.stage, status, count(*) AS jobs FROM jobs JOIN lanes ON lanes.id = lane_id GROUP BY lanes.id, status;

-- name: nearest_jobs
SELECT id FROM jobs WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT 5;

-- name: last_job
SELECT max(id) FROM jobs;

-- part: listed
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, waiting, error_code, run_at, created_at, key

-- part: listed_where
-- What the listed jobs have in common, but for their state.
jobs.id < $1 AND ($3::text IS NULL OR jobs.pipeline = $3) AND ($4::text IS NULL OR lanes.stage = $4)
    AND ($5::bigint IS NULL OR run_id = $5) AND ($6::text IS NULL OR owner = $6)

-- name: list_jobs
{listed}
FROM jobs JOIN lanes ON lanes.id = lane_id
WHERE ($2::text IS NULL OR status = $2) AND {listed_where}
ORDER BY jobs.id DESC LIMIT $7;

-- name: list_queued
-- The statements that list jobs take the same parameters; each uses another index. Queued jobs are read in the index alone, unless the
-- filter needs more. Where the state is known, its parameter is named for its type alone.
{listed}
FROM (SELECT id AS found FROM jobs /* INDEXED BY jobs_ready */
        WHERE status = 'queued' AND (true OR $2::text = '') AND id < $1 AND lane_id IN (
            SELECT lanes.id FROM lanes WHERE ($3::text IS NULL OR pipeline = $3) AND ($4::text IS NULL OR stage = $4))
            AND ($5::bigint IS NULL OR run_id = $5) AND ($6::text IS NULL OR owner = $6)
        ORDER BY id DESC LIMIT $7) AS first
    /* CROSS */ JOIN jobs ON jobs.id = found JOIN lanes ON lanes.id = lane_id
ORDER BY jobs.id DESC;

-- name: list_processing
{listed}
FROM jobs /* INDEXED BY jobs_leased */ /* CROSS */ JOIN lanes ON lanes.id = lane_id
WHERE status = 'processing' AND (true OR $2::text = '') AND {listed_where}
ORDER BY jobs.id DESC LIMIT $7;

-- name: list_failed
{listed}
FROM jobs /* INDEXED BY jobs_failed */ /* CROSS */ JOIN lanes ON lanes.id = lane_id
WHERE status = 'failed' AND (true OR $2::text = '') AND {listed_where}
ORDER BY jobs.id DESC LIMIT $7;

-- name: list_ended
-- No index has the complete, cancelled or skipped jobs, but the tallies count them: the search ends after the last one, and does not start
-- when there is none.
{listed}
FROM jobs /* CROSS */ JOIN lanes ON lanes.id = lane_id
WHERE status = $2 AND {listed_where}
ORDER BY jobs.id DESC LIMIT least($7, (
    SELECT coalesce(sum(tallies.jobs - pruned), 0) FROM tallies JOIN lanes AS lane ON lane.id = tallies.lane_id
    WHERE tallies.status = $2 AND ($3::text IS NULL OR lane.pipeline = $3) AND ($4::text IS NULL OR lane.stage = $4)));

-- name: list_of_run
-- The items of a run are listed in their order; jobs that joined it come after them.
{listed}
FROM jobs /* INDEXED BY jobs_of_run */ /* CROSS */ JOIN lanes ON lanes.id = lane_id
WHERE run_id = $5 AND ordinal < coalesce((SELECT before.ordinal FROM jobs AS before WHERE before.id = $1 AND before.run_id = $5), 1::bigint << 62)
    AND (jobs.id < $1 OR EXISTS (SELECT 1 FROM jobs AS before WHERE before.id = $1 AND before.run_id = $5))
    AND ($2::text IS NULL OR status = $2) AND ($3::text IS NULL OR jobs.pipeline = $3) AND ($4::text IS NULL OR lanes.stage = $4)
    AND ($6::text IS NULL OR owner = $6)
ORDER BY ordinal DESC LIMIT $7;

-- name: list_of_key
-- One index has the jobs that hold a key, at most one of each pipeline; the other has those that gave it back.
{listed}
FROM (SELECT id AS found FROM jobs /* INDEXED BY jobs_key */
        WHERE key = $8 AND status IN ('queued', 'processing', 'complete') AND pipeline IN (SELECT lanes.pipeline FROM lanes)
        UNION ALL SELECT id FROM jobs /* INDEXED BY jobs_of_key */ WHERE key = $8 AND status IN ('failed', 'cancelled', 'skipped')) AS named
    /* CROSS */ JOIN jobs ON jobs.id = found JOIN lanes ON lanes.id = lane_id
WHERE ($2::text IS NULL OR status = $2) AND {listed_where}
ORDER BY jobs.id DESC LIMIT $7;

-- name: children
SELECT id FROM jobs /* INDEXED BY jobs_children */ WHERE parent_id = $1 ORDER BY id;

-- part: event
SELECT seq, job_id AS job, dispatch, lanes.pipeline, lanes.stage, round, attempt, outcome, code, ended_at AS at, decision
FROM attempts JOIN lanes ON lanes.id = lane_id

-- name: latest_events
{event}
WHERE ($1::text IS NULL OR lanes.pipeline = $1) ORDER BY seq DESC LIMIT $2;

-- name: events_of_job
{event}
WHERE job_id = $1 AND seq > $2 ORDER BY dispatch DESC LIMIT $3;

-- name: transitions_of_job
SELECT at, event, stage, attempt, code, http_status, duration_ms, reason, dispatch FROM events
WHERE job_id = $1 ORDER BY dispatch, part;

-- name: cancel_queued
UPDATE jobs SET status = 'cancelled', finished_at = $1, waiting = NULL WHERE id = $2 AND status = 'queued';

-- name: ask_to_cancel
UPDATE jobs SET cancel_asked = 1 WHERE id = $1 AND status = 'processing';

-- name: job_to_erase
SELECT status, erased_at FROM jobs WHERE id = $1;

-- name: log_erase
-- Before the job is erased, in the same transaction.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
SELECT $1, $2, $3, $4, $5, $6, (SELECT count(*) FROM dead_letters WHERE job_id = $7), json_build_object(
    'before', json_build_object('values', 'kept', 'edits', (
        SELECT count(*) FROM edits WHERE job_id = $7 AND coalesce(before, after) IS NOT NULL)),
    'after', json_build_object('values', 'erased', 'edits', 0))::text;

-- name: erase_job
UPDATE jobs SET payload = NULL, input = NULL, input_from = 0, result = NULL, result_from = NULL, progress = NULL, erased_at = $2
WHERE id = $1 AND status IN ('complete', 'failed', 'cancelled', 'skipped') AND erased_at IS NULL;

-- name: erase_values
DELETE FROM job_values WHERE job_id = $1;

-- name: erase_edits
UPDATE edits SET before = NULL, after = NULL WHERE job_id = $1;
