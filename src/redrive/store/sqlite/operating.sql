-- SPDX-License-Identifier: Apache-2.0
-- What operators ask and change: latest events, pausing, health of the file and of the work, pruning.

-- name: latest_events
SELECT seq, job_id, dispatch, lanes.pipeline, lanes.stage, round, attempt, outcome, code, reason, sentence, ended_at
FROM attempts JOIN lanes ON lanes.id = lane_id
WHERE (?1 IS NULL OR lanes.pipeline = ?1) ORDER BY seq DESC LIMIT ?2;

-- name: events_of_job
SELECT seq, job_id, dispatch, lanes.pipeline, lanes.stage, round, attempt, outcome, code, reason, sentence, ended_at
FROM attempts JOIN lanes ON lanes.id = lane_id
WHERE job_id = ?1 AND seq > ?2 ORDER BY dispatch DESC LIMIT ?3;

-- name: operations_on
SELECT id, at, actor, verb, subject, reason, letters, change FROM operations WHERE subject = ? ORDER BY id;

-- name: run_codes
SELECT error_code, count(*) FROM jobs WHERE run_id = ? AND status = 'failed' GROUP BY error_code ORDER BY 2 DESC, 1;

-- name: log_pipeline
-- Before it is done, in the same transaction: how the pipeline was, and how many of its jobs wait.
INSERT INTO operations (at, actor, verb, subject, reason, change)
SELECT ?1, ?2, ?3, ?4, ?5, json_object(
    'before', json_object('status',
        CASE sum(paused_at IS NOT NULL) WHEN 0 THEN 'running' WHEN count(*) THEN 'paused' ELSE 'partly paused' END),
    'after', json_object('status', ?6, 'jobs_waiting', (
        SELECT count(*) FROM jobs WHERE status = 'queued' AND lane_id IN (SELECT id FROM lanes WHERE pipeline = ?7))))
FROM lanes WHERE pipeline = ?7;

-- name: pause_lanes
UPDATE lanes SET paused_at = ? WHERE pipeline = ? AND paused_at IS NULL RETURNING id;

-- name: resume_lanes
UPDATE lanes SET paused_at = NULL WHERE pipeline = ? AND paused_at IS NOT NULL RETURNING id;

-- name: database_file
SELECT file FROM pragma_database_list WHERE name = 'main';

-- name: schema_version
SELECT user_version FROM pragma_user_version;

-- name: journal_mode
SELECT journal_mode FROM pragma_journal_mode;

-- name: integrity
SELECT integrity_check FROM pragma_integrity_check(20);

-- name: broken_references
SELECT "table", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2;

-- name: latest_instant
SELECT max(at) FROM (
    SELECT max(created_at) AS at FROM (SELECT created_at FROM jobs ORDER BY id DESC LIMIT 100)
    UNION ALL SELECT max(ended_at) FROM (SELECT ended_at FROM attempts ORDER BY seq DESC LIMIT 100)
    UNION ALL SELECT max(started_at) FROM workers
    UNION ALL SELECT max(at) FROM (SELECT at FROM operations ORDER BY id DESC LIMIT 100));

-- name: ownerless_jobs
SELECT id FROM jobs INDEXED BY jobs_leased WHERE status = 'processing' AND worker_id NOT IN (SELECT id FROM workers) ORDER BY id LIMIT ?;

-- name: long_running
SELECT jobs.id, lanes.pipeline, lanes.stage, last_attempt_at FROM jobs JOIN lanes ON lanes.id = lane_id
WHERE status = 'processing' AND last_attempt_at < ? ORDER BY last_attempt_at LIMIT ?;

-- name: due_of_lane
SELECT count(*), min(run_at) FROM jobs WHERE lane_id = ? AND status = 'queued' AND run_at <= ?;

-- name: open_letters
SELECT count(*), min(first_failure_at) FROM dead_letters WHERE state = 'open';

-- name: running_runs
SELECT id, pipeline FROM runs WHERE status = 'running' ORDER BY id DESC LIMIT ?;

-- name: prune_window
SELECT id, status, finished_at, created_at, EXISTS (SELECT 1 FROM outbox WHERE job_id = jobs.id)
FROM jobs WHERE id > ? ORDER BY id LIMIT ?;

-- name: prune_values
DELETE FROM job_values WHERE job_id IN (SELECT jobs.id FROM jobs JOIN json_each(?1) AS given ON jobs.id = given.value
    WHERE status = ?2 AND finished_at < ?3);

-- name: prune_edits
DELETE FROM edits WHERE job_id IN (SELECT jobs.id FROM jobs JOIN json_each(?1) AS given ON jobs.id = given.value
    WHERE status = ?2 AND finished_at < ?3);

-- name: prune_notices
DELETE FROM outbox WHERE job_id IN (SELECT jobs.id FROM jobs JOIN json_each(?1) AS given ON jobs.id = given.value
    WHERE status = ?2 AND finished_at < ?3);

-- name: prune_letters
DELETE FROM dead_letters WHERE job_id IN (SELECT jobs.id FROM jobs JOIN json_each(?1) AS given ON jobs.id = given.value
    WHERE status = ?2 AND finished_at < ?3);

-- name: prune_attempts
DELETE FROM attempts WHERE job_id IN (SELECT jobs.id FROM jobs JOIN json_each(?1) AS given ON jobs.id = given.value
    WHERE status = ?2 AND finished_at < ?3);

-- name: prune_jobs
DELETE FROM jobs WHERE id IN (SELECT jobs.id FROM jobs JOIN json_each(?1) AS given ON jobs.id = given.value
    WHERE status = ?2 AND finished_at < ?3)
RETURNING id;

-- name: edits_of_job
SELECT before, after FROM edits WHERE job_id = ? ORDER BY id;

-- name: skipped_for
-- The first letters that a campaign left out for one reason; the same words as in campaign_skips.
SELECT letter_id, reason FROM campaign_skips
WHERE campaign_id = ?1 AND CASE WHEN instr(reason, ' (job ') THEN substr(reason, 1, instr(reason, ' (job ') - 1) ELSE reason END = ?2
ORDER BY letter_id LIMIT ?3;
