-- SPDX-License-Identifier: Apache-2.0
-- Reports: counts over many jobs and attempts.

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
    sum(outcome = 'crashed'), sum(outcome = 'skipped'), avg(ended_at - started_at), pipeline
FROM attempts JOIN lanes ON lanes.id = lane_id WHERE ?1 IS NULL OR pipeline = ?1 GROUP BY lane_id ORDER BY pipeline, position;

-- name: stage_reliability_of_run
SELECT stage, count(*), sum(outcome = 'ok'), sum(outcome = 'retry'), sum(outcome = 'hold'), sum(outcome = 'dead'),
    sum(outcome = 'crashed'), sum(outcome = 'skipped'), avg(ended_at - attempts.started_at), lanes.pipeline
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
