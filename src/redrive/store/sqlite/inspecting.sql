-- SPDX-License-Identifier: Apache-2.0
-- What people and programs look at: plain reading, never inside a transaction of the engine's.

-- name: job
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, error_code, error_message, key, owner, run_id, priority, waiting, run_at,
    created_at, started_at, finished_at, progress, round, dispatch, parent_id, cancel_asked, worker_id, expires_at, erased_at
FROM jobs JOIN lanes ON lanes.id = lane_id WHERE jobs.id = ?;

-- name: result
SELECT status, CASE WHEN result_from IS NULL THEN result
    ELSE (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = result_from) END
FROM jobs WHERE id = ?;

-- name: attempts
SELECT dispatch, lanes.stage, round, attempt, outcome, burned, code, message, http_status, reason, sentence, notes, worker_id,
    started_at, ended_at, config, error_class
FROM attempts JOIN lanes ON lanes.id = lane_id WHERE job_id = ? ORDER BY dispatch;

-- name: counts
SELECT lanes.pipeline, lanes.stage, 'queued', count(*) FROM jobs JOIN lanes ON lanes.id = lane_id WHERE status = 'queued'
GROUP BY lane_id
UNION ALL
SELECT lanes.pipeline, lanes.stage, 'processing', count(*) FROM jobs JOIN lanes ON lanes.id = lane_id WHERE status = 'processing'
GROUP BY lane_id
UNION ALL
SELECT lanes.pipeline, lanes.stage, status, sum(jobs - pruned) FROM tallies JOIN lanes ON lanes.id = lane_id
GROUP BY lane_id, status HAVING sum(jobs - pruned) > 0;

-- name: recount
SELECT lanes.pipeline, lanes.stage, status, count(*) FROM jobs JOIN lanes ON lanes.id = lane_id GROUP BY lane_id, status;

-- name: near_jobs
SELECT id FROM jobs WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 5;

-- name: last_job
SELECT max(id) FROM jobs;

-- name: list_jobs
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, waiting, error_code, run_at, created_at
FROM jobs JOIN lanes ON lanes.id = lane_id
WHERE jobs.id < ?1 AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR jobs.pipeline = ?3) AND (?4 IS NULL OR lanes.stage = ?4)
    AND (?5 IS NULL OR run_id = ?5) AND (?6 IS NULL OR owner = ?6)
ORDER BY jobs.id DESC LIMIT ?7;

-- name: list_queued
-- The statements that list jobs take the same parameters; which of them is used decides which index. All that is queued is looked at
-- in the index alone, unless the filter asks for more.
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, waiting, error_code, run_at, created_at
FROM (SELECT id AS found FROM jobs INDEXED BY jobs_ready
        WHERE status = 'queued' AND id < ?1 AND lane_id IN (
            SELECT lanes.id FROM lanes WHERE (?3 IS NULL OR pipeline = ?3) AND (?4 IS NULL OR stage = ?4))
            AND (?5 IS NULL OR run_id = ?5) AND (?6 IS NULL OR owner = ?6)
        ORDER BY id DESC LIMIT ?7)
    CROSS JOIN jobs ON jobs.id = found JOIN lanes ON lanes.id = lane_id
ORDER BY jobs.id DESC;

-- name: list_processing
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, waiting, error_code, run_at, created_at
FROM jobs INDEXED BY jobs_leased CROSS JOIN lanes ON lanes.id = lane_id
WHERE status = 'processing' AND jobs.id < ?1 AND (?3 IS NULL OR jobs.pipeline = ?3) AND (?4 IS NULL OR lanes.stage = ?4)
    AND (?5 IS NULL OR run_id = ?5) AND (?6 IS NULL OR owner = ?6)
ORDER BY jobs.id DESC LIMIT ?7;

-- name: list_failed
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, waiting, error_code, run_at, created_at
FROM jobs INDEXED BY jobs_failed CROSS JOIN lanes ON lanes.id = lane_id
WHERE status = 'failed' AND jobs.id < ?1 AND (?3 IS NULL OR jobs.pipeline = ?3) AND (?4 IS NULL OR lanes.stage = ?4)
    AND (?5 IS NULL OR run_id = ?5) AND (?6 IS NULL OR owner = ?6)
ORDER BY jobs.id DESC LIMIT ?7;

-- name: list_ended
-- No index has the jobs that are complete or cancelled, but the tallies know how many there are: after the last one, or when there is
-- none at all, nothing more is looked at.
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, waiting, error_code, run_at, created_at
FROM jobs CROSS JOIN lanes ON lanes.id = lane_id
WHERE jobs.id < ?1 AND status = ?2 AND (?3 IS NULL OR jobs.pipeline = ?3) AND (?4 IS NULL OR lanes.stage = ?4)
    AND (?5 IS NULL OR run_id = ?5) AND (?6 IS NULL OR owner = ?6)
ORDER BY jobs.id DESC LIMIT min(?7, (
    SELECT coalesce(sum(tallies.jobs - pruned), 0) FROM tallies JOIN lanes AS told ON told.id = tallies.lane_id
    WHERE tallies.status = ?2 AND (?3 IS NULL OR told.pipeline = ?3) AND (?4 IS NULL OR told.stage = ?4)));

-- name: list_of_run
-- The items of a run have rising ids, because they are submitted in their order.
SELECT jobs.id, jobs.pipeline, lanes.stage, status, attempt, waiting, error_code, run_at, created_at
FROM jobs INDEXED BY jobs_of_run CROSS JOIN lanes ON lanes.id = lane_id
WHERE run_id = ?5 AND ordinal < coalesce((SELECT before.ordinal FROM jobs AS before WHERE before.id = ?1 AND before.run_id = ?5), 1 << 62)
    AND jobs.id < ?1 AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR jobs.pipeline = ?3) AND (?4 IS NULL OR lanes.stage = ?4)
    AND (?6 IS NULL OR owner = ?6)
ORDER BY ordinal DESC LIMIT ?7;

-- name: events
SELECT seq, job_id, dispatch, lanes.pipeline, lanes.stage, round, attempt, outcome, code, reason, sentence, ended_at
FROM attempts JOIN lanes ON lanes.id = lane_id
WHERE seq > ?1 AND (?2 IS NULL OR job_id = ?2) AND (?3 IS NULL OR lanes.pipeline = ?3) ORDER BY seq LIMIT ?4;

-- name: last_event
SELECT coalesce(max(seq), 0) FROM attempts;

-- name: operations
SELECT id, at, actor, verb, subject, reason, letters, change FROM operations ORDER BY id DESC LIMIT ?;

-- name: operations_before
SELECT id, at, actor, verb, subject, reason, letters, change FROM operations WHERE id < ? ORDER BY id DESC LIMIT ?;

-- name: import_of_job
SELECT origin, letter, at, actor, job, attempts FROM imports WHERE job_id = ?;

-- name: lanes
SELECT lanes.id, pipeline, stage, position, paused_at,
    (SELECT count(*) FROM jobs WHERE lane_id = lanes.id AND status = 'queued'),
    (SELECT count(*) FROM jobs WHERE lane_id = lanes.id AND status = 'processing')
FROM lanes ORDER BY pipeline, position;

-- name: workers
SELECT id, host, process, pipelines, concurrency, started_at, expires_at, coalesce(leased, 0)
FROM workers LEFT JOIN (SELECT worker_id, count(*) AS leased FROM jobs WHERE status = 'processing' GROUP BY worker_id) ON worker_id = id
ORDER BY started_at;

-- name: breakers
SELECT name, state FROM breakers ORDER BY name;

-- name: run
SELECT id, pipeline, status, options, reason, is_fed, created_at, ended_at, items,
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'complete'),
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'failed'),
    (SELECT coalesce(sum(jobs), 0) FROM tallies WHERE run_id = runs.id AND tallies.status = 'cancelled')
FROM runs WHERE id = ?;

-- name: runs
SELECT id FROM runs ORDER BY id DESC LIMIT ?;

-- name: run_tally
SELECT status, sum(jobs) FROM tallies WHERE run_id = ? GROUP BY status;

-- name: run_payloads
SELECT ordinal, coalesce(payload, (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = 0))
FROM jobs WHERE run_id = ? AND ordinal >= ? AND ordinal < ? ORDER BY ordinal;

-- name: letters_of_job
SELECT id, state, round, code, category, message, error_class, stack, fingerprint, context, reason,
    first_failure_at, last_failure_at, job_id, is_escalated, verdict, campaign_id, follows, diagnosis, assignee,
    closed_at
FROM letters WHERE job_id = ? ORDER BY id;

-- name: schedules
SELECT name, lanes.pipeline, cron, zone, next_at, last_at FROM schedules JOIN lanes ON lanes.id = lane_id ORDER BY name;

-- name: due_schedules
SELECT name, lane_id, cron, zone, payload, priority, next_at FROM schedules WHERE next_at <= ? ORDER BY name;

-- name: next_schedule_at
SELECT min(next_at) FROM schedules;

-- name: walk_of_job
SELECT at, event, stage, attempt, code, http_status, duration_ms, reason, dispatch FROM events
WHERE job_id = ? ORDER BY dispatch, part;

-- name: retry_histogram
-- How many jobs needed how many retries, in all their stages or in one.
SELECT retries, count(*) FROM (
    SELECT sum(outcome = 'retry') AS retries FROM attempts
    WHERE lane_id IN (SELECT id FROM lanes WHERE (?1 IS NULL OR pipeline = ?1) AND (?2 IS NULL OR stage = ?2))
    GROUP BY job_id)
GROUP BY retries ORDER BY retries;

-- name: retry_histogram_of_run
SELECT retries, count(*) FROM (
    SELECT sum(outcome = 'retry') AS retries
    FROM jobs CROSS JOIN attempts ON job_id = jobs.id JOIN lanes ON lanes.id = attempts.lane_id
    WHERE run_id = ?1 AND (?2 IS NULL OR stage = ?2) GROUP BY job_id)
GROUP BY retries ORDER BY retries;

-- name: error_ranking
SELECT code, count(*), count(DISTINCT job_id), max(ended_at) FROM attempts JOIN lanes ON lanes.id = lane_id
WHERE code IS NOT NULL AND (?1 IS NULL OR pipeline = ?1) AND (?2 IS NULL OR stage = ?2) GROUP BY code ORDER BY count(*) DESC, code;

-- name: error_ranking_of_run
SELECT code, count(*), count(DISTINCT job_id), max(ended_at)
FROM jobs CROSS JOIN attempts ON job_id = jobs.id JOIN lanes ON lanes.id = attempts.lane_id
WHERE run_id = ?1 AND code IS NOT NULL AND (?2 IS NULL OR stage = ?2) GROUP BY code ORDER BY count(*) DESC, code;

-- name: stage_reliability
SELECT stage, count(*), sum(outcome = 'ok'), sum(outcome = 'retry'), sum(outcome = 'hold'), sum(outcome = 'dead'),
    sum(outcome = 'crashed'), avg(ended_at - started_at), pipeline
FROM attempts JOIN lanes ON lanes.id = lane_id WHERE ?1 IS NULL OR pipeline = ?1 GROUP BY lane_id ORDER BY pipeline, position;

-- name: stage_reliability_of_run
SELECT stage, count(*), sum(outcome = 'ok'), sum(outcome = 'retry'), sum(outcome = 'hold'), sum(outcome = 'dead'),
    sum(outcome = 'crashed'), avg(ended_at - attempts.started_at), lanes.pipeline
FROM jobs CROSS JOIN attempts ON job_id = jobs.id JOIN lanes ON lanes.id = attempts.lane_id
WHERE run_id = ?1 GROUP BY attempts.lane_id ORDER BY position;

-- name: pipeline_account
-- How many jobs a pipeline has in each state. Those of ended jobs are counters that are moved with each job; open ones are counted.
SELECT status, sum(jobs - pruned), sum(pruned) FROM tallies JOIN lanes ON lanes.id = lane_id WHERE pipeline = ?1 GROUP BY status
UNION ALL
SELECT status, count(*), 0 FROM jobs WHERE status = 'queued' AND lane_id IN (SELECT id FROM lanes WHERE pipeline = ?1) GROUP BY status
UNION ALL
SELECT status, count(*), 0 FROM jobs WHERE status = 'processing' AND pipeline = ?1 GROUP BY status;

-- name: pipeline_total
SELECT count(*) FROM jobs WHERE pipeline = ?;

-- name: run_account
SELECT status, sum(jobs - pruned), sum(pruned) FROM tallies WHERE run_id = ?1 GROUP BY status
UNION ALL
SELECT status, count(*), 0 FROM jobs WHERE run_id = ?1 AND status IN ('queued', 'processing') GROUP BY status;

-- name: run_total
SELECT items, (SELECT count(*) FROM jobs WHERE run_id = runs.id) FROM runs WHERE id = ?;
