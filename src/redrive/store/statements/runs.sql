-- SPDX-License-Identifier: Apache-2.0
-- Runs and schedules.

-- name: add_run
INSERT INTO runs (pipeline, status, options, created_at) VALUES ($1::text, 'running', $2::bytea, $3::double precision) RETURNING id;

-- name: open_run
-- A run that has all its items: they follow in the same transaction.
INSERT INTO runs (pipeline, status, options, created_at, is_fed, items, key, label, owner)
VALUES ($1::text, 'running', $2::bytea, $3::double precision, 1, $4::bigint, $5::text, $6::text, $7::text)
ON CONFLICT DO NOTHING RETURNING id;

-- name: open_traces
-- Of all items of the run that was opened just before: $1 where it was opened.
INSERT INTO job_traces (job_id, traceparent) SELECT id, $1::text FROM jobs WHERE run_id = {opened_run};

-- name: run_with_key
SELECT id FROM runs WHERE pipeline = $1::text AND key = $2::text;

-- name: end_source
UPDATE runs SET is_fed = 1 WHERE id = $1::bigint;

-- name: open_source
-- Not of a run that has ended meanwhile; a paused one has not.
UPDATE runs SET is_fed = 0 WHERE id = $1::bigint AND (ended_at IS NULL OR status = 'paused');

-- name: keep_run
-- The process that feeds it decides its status until then.
UPDATE runs SET driven_until = $1::double precision WHERE id = $2::bigint;

-- name: end_run
-- Not one that somebody cancelled or paused meanwhile, except to record its end.
UPDATE runs SET status = $1::text, reason = coalesce($2::text, reason), ended_at = $3::double precision
WHERE id = $4::bigint AND (status NOT IN ('cancelled', 'paused') OR status = $1::text);

-- name: has_permanent
SELECT EXISTS (SELECT 1 FROM dead_letters /* INDEXED BY dead_letters_run */ /* CROSS */ JOIN letter_facts ON letter_id = dead_letters.id
    WHERE run_id = $1::bigint AND is_retryable = 0)::integer;

-- name: has_live_runs
SELECT EXISTS (SELECT 1 FROM runs /* INDEXED BY runs_live */ WHERE ended_at IS NULL AND status <> 'paused')::integer;

-- name: lock_run
-- Before `decide_run`, in the same transaction: whoever queues one of its jobs again meanwhile is waited for, so that the next statement counts that.
SELECT id FROM runs WHERE id = $1::bigint FOR UPDATE;

-- name: decide_run
-- Once, and only while it still is as it was when its status was decided.
UPDATE runs SET status = $1::text, reason = coalesce($2::text, reason), ended_at = $3::double precision
WHERE id = $4::bigint AND status = $5::text AND ended_at IS NULL AND items + children = $6::bigint
    AND (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = $4::bigint) = $7::bigint
    AND (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = $4::bigint AND tallies.status = 'complete') = $8::bigint;

-- name: restart_run
UPDATE runs SET status = 'running', options = $1::bytea, reason = NULL, ended_at = NULL WHERE id = $2::bigint;

-- name: stop_run
-- By an operator, or by its failure budget: $1 is paused, cancelled or aborted. One that failed before all its items have ended, too.
UPDATE runs SET status = $1::text, reason = $2::text, ended_at = $3::double precision
WHERE id = $4::bigint AND status <> $1::text AND (status IN ('running', 'paused') OR (status = 'failed' AND ended_at IS NULL));

-- name: continue_run
UPDATE runs SET status = 'running', options = $1::bytea, reason = NULL, ended_at = NULL WHERE id = $2::bigint AND status = 'paused';

-- name: label_run
UPDATE runs SET label = $1::text WHERE id = $2::bigint;

-- name: join_run
-- A job of a stage joins the run of its parent, after all items of its source.
UPDATE runs SET children = children + 1 WHERE id = (SELECT run_id FROM jobs WHERE jobs.id = $1::bigint)
RETURNING id, children - 1 + (1::bigint << 40), status;

-- name: stop_child
-- A job that joined a run that is stopped: it waits as its items do, or ends like them.
UPDATE jobs SET status = CASE $2::text WHEN 'cancelled' THEN 'cancelled' ELSE status END,
    finished_at = CASE $2::text WHEN 'cancelled' THEN $3::double precision END,
    run_at = run_at + CASE $2::text WHEN 'paused' THEN 1e12 ELSE 0 END, waiting = CASE $2::text WHEN 'paused' THEN 'paused' END
WHERE id = $1::bigint;

-- part: items_to_cancel
SELECT id FROM jobs /* INDEXED BY jobs_of_run */ WHERE run_id = $2::bigint AND ordinal >= $4::bigint AND status = 'queued'
    ORDER BY ordinal LIMIT $3::bigint FOR UPDATE;

-- name: cancel_run
-- From an ordinal on, so that what has ended is not read again at every step.
UPDATE jobs /* NOT INDEXED */ SET status = 'cancelled', finished_at = $1::double precision, waiting = NULL
WHERE id = ANY (ARRAY({items_to_cancel})) AND status = 'queued'
RETURNING ordinal;

-- name: ask_to_cancel_run
UPDATE jobs /* INDEXED BY jobs_leased */ SET cancel_asked = 1 WHERE run_id = $1::bigint AND status = 'processing' AND cancel_asked = 0;

-- name: pause_run
-- Only while it is paused: somebody may have resumed it. Its row is locked, so that nobody does so meanwhile.
UPDATE jobs SET run_at = run_at + 1e12, waiting = 'paused' WHERE run_id = $1::bigint AND jobs.status = 'queued' AND run_at < 1e12
    AND EXISTS (SELECT 1 FROM runs WHERE id = $1::bigint AND runs.status = 'paused' FOR SHARE);

-- name: unpause_run
UPDATE jobs SET run_at = run_at - 1e12, waiting = NULL WHERE run_id = $1::bigint AND status = 'queued' AND run_at >= 1e12;

-- name: pause_jobs
-- Those of these jobs that are queued again, if their run still is paused: $1 their ids as JSON.
UPDATE jobs SET run_at = run_at + 1e12, waiting = 'paused' WHERE id {in_ids} AND status = 'queued' AND run_at < 1e12
    AND EXISTS (SELECT 1 FROM runs WHERE runs.id = run_id AND runs.status = 'paused');

-- name: paused_at_work
-- Items of paused runs that are in a stage: they are queued again after it, or after a later one, and have to be paused as well.
-- The run of each is looked up: to find the paused ones first, all runs would be read.
SELECT id, run_id FROM jobs /* INDEXED BY jobs_leased */
WHERE status = 'processing' AND (SELECT runs.status FROM runs WHERE runs.id = run_id) = 'paused' ORDER BY id;

-- name: run
SELECT id, pipeline, status, options, reason, is_fed, created_at, ended_at, items + children AS total,
    (SELECT coalesce(sum(jobs), 0)::bigint FROM tallies WHERE run_id = runs.id AND tallies.status = 'complete') AS complete,
    (SELECT coalesce(sum(jobs), 0)::bigint FROM tallies WHERE run_id = runs.id AND tallies.status = 'failed') AS failed,
    (SELECT coalesce(sum(jobs), 0)::bigint FROM tallies WHERE run_id = runs.id AND tallies.status = 'cancelled') AS cancelled,
    (SELECT coalesce(sum(jobs), 0)::bigint FROM tallies WHERE run_id = runs.id AND tallies.status = 'skipped') AS skipped,
    key, label, owner, children
FROM runs WHERE id = $1::bigint;

-- name: runs
SELECT id FROM runs ORDER BY id DESC LIMIT $1::bigint;

-- name: run_payloads
SELECT ordinal, stored.payload
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE run_id = $1::bigint AND ordinal >= $2::bigint AND ordinal < $3::bigint ORDER BY ordinal;

-- name: run_results
-- The jobs of a run from an ordinal on, with their results.
SELECT ordinal, id, status, stored.result AS value
FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE run_id = $1::bigint AND ordinal >= $2::bigint ORDER BY ordinal LIMIT $3::bigint;

-- name: run_codes
SELECT error_code, count(*) AS jobs FROM jobs WHERE run_id = $1::bigint AND status = 'failed'
GROUP BY error_code ORDER BY count(*) DESC, error_code;

-- name: running_runs
-- Those that run are among the live ones, which have an index.
SELECT id, pipeline FROM runs /* INDEXED BY runs_live */ WHERE ended_at IS NULL AND status <> 'paused' AND status = 'running'
ORDER BY id DESC LIMIT $1::bigint;

-- name: put_schedule
INSERT INTO schedules (name, lane_id, cron, zone, payload, priority, next_at)
VALUES ($1::text, $2::bigint, $3::text, $4::text, $5::bytea, $6::bigint, $7::double precision)
ON CONFLICT (name) DO UPDATE SET lane_id = excluded.lane_id, payload = excluded.payload, priority = excluded.priority,
    next_at = CASE WHEN schedules.cron = excluded.cron AND schedules.zone = excluded.zone THEN schedules.next_at ELSE excluded.next_at END,
    cron = excluded.cron, zone = excluded.zone;

-- name: schedule
SELECT lane_id, cron, zone, payload, priority FROM schedules WHERE name = $1::text;

-- name: tick
UPDATE schedules SET next_at = $1::double precision, last_at = $2::double precision
WHERE name = $3::text AND next_at = $4::double precision;

-- name: drop_schedule
DELETE FROM schedules WHERE name = $1::text;

-- name: submit_tick
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, payload, created_at)
SELECT lanes.pipeline, lanes.id, 'queued', $2::bigint, $3::double precision, $4::text, $5::bytea, $6::double precision
FROM lanes WHERE lanes.id = $1::bigint
ON CONFLICT DO NOTHING;

-- name: schedules
SELECT name, lanes.pipeline, cron, zone, next_at, last_at, NULL::text AS prunes, NULL::text AS deleted FROM schedules JOIN lanes ON lanes.id = lane_id ORDER BY name;

-- name: due_schedules
SELECT name, lane_id, pipeline, cron, zone, payload, priority, next_at FROM schedules JOIN lanes ON lanes.id = lane_id
WHERE next_at <= $1::double precision ORDER BY name;

-- name: next_schedule_at
SELECT min(next_at) FROM schedules;
