-- SPDX-License-Identifier: Apache-2.0
-- Reports: counts over many jobs and attempts.

-- part: reliability
SELECT lanes.pipeline, stage, count(*) AS attempts, count(*) FILTER (WHERE outcome = 'ok') AS ok, count(*) FILTER (WHERE outcome = 'retry') AS retry,
    count(*) FILTER (WHERE outcome = 'hold') AS hold, count(*) FILTER (WHERE outcome = 'dead') AS dead,
    count(*) FILTER (WHERE outcome = 'crashed') AS crashed, count(*) FILTER (WHERE outcome = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE outcome = 'skipped') AS skipped,
    coalesce(avg(CASE outcome WHEN 'ok' THEN 1.0::double precision ELSE 0 END) FILTER (WHERE outcome IN ('ok', 'retry', 'dead')), 0) AS success,
    avg(ended_at - attempts.started_at) AS seconds

-- name: stage_reliability
{reliability} FROM attempts JOIN lanes ON lanes.id = lane_id WHERE $1::text IS NULL OR lanes.pipeline = $1::text
GROUP BY lanes.id ORDER BY lanes.pipeline, position, lanes.id;

-- part: of_lanes
-- $1 pipeline, $2 stage; NULL matches all.
($1::text IS NULL OR lanes.pipeline = $1::text) AND ($2::text IS NULL OR lanes.stage = $2::text);

-- part: attempts_of_run
-- $1 run
FROM jobs /* CROSS */ JOIN attempts ON job_id = jobs.id JOIN lanes ON lanes.id = attempts.lane_id WHERE run_id = $1::bigint;

-- name: retry_histogram
-- How many jobs needed how many retries, in all their stages or in one.
SELECT retries, count(*) AS jobs FROM (
    SELECT count(*) FILTER (WHERE outcome = 'retry') AS retries FROM attempts
    WHERE lane_id IN (SELECT id FROM lanes WHERE {of_lanes}) GROUP BY job_id) AS by_job
GROUP BY retries ORDER BY retries;

-- name: retry_histogram_of_run
SELECT retries, count(*) AS jobs FROM (
    SELECT count(*) FILTER (WHERE outcome = 'retry') AS retries {attempts_of_run} AND ($2::text IS NULL OR stage = $2::text)
    GROUP BY job_id) AS by_job
GROUP BY retries ORDER BY retries;

-- name: error_ranking
SELECT code, count(*) AS attempts, count(DISTINCT job_id) AS jobs, max(ended_at) AS last_at FROM attempts JOIN lanes ON lanes.id = lane_id
WHERE code IS NOT NULL AND {of_lanes} GROUP BY code ORDER BY count(*) DESC, code;

-- name: error_ranking_of_run
SELECT code, count(*) AS attempts, count(DISTINCT job_id) AS jobs, max(ended_at) AS last_at {attempts_of_run} AND code IS NOT NULL
    AND ($2::text IS NULL OR stage = $2::text)
GROUP BY code ORDER BY count(*) DESC, code;

-- name: stage_reliability_of_run
{reliability} {attempts_of_run} GROUP BY lanes.id ORDER BY position, lanes.id;

-- name: attempts_of_stages
-- What burned an attempt, stage by stage of each job and round, in order.
SELECT attempts.job_id, attempts.lane_id, attempts.round, outcome, code, http_status, decision
FROM attempts JOIN lanes ON lanes.id = attempts.lane_id
WHERE burned = 1 AND outcome IN ('ok', 'retry', 'dead') AND {of_lanes}
ORDER BY attempts.job_id, attempts.lane_id, attempts.round, attempts.dispatch;

-- name: pipeline_account
-- How many jobs a pipeline has in each state. Those of ended jobs are counters that are moved with each job; open ones are counted.
SELECT status, sum(jobs - pruned)::bigint AS jobs, sum(pruned)::bigint AS pruned FROM tallies JOIN lanes ON lanes.id = lane_id WHERE pipeline = $1::text
GROUP BY status
UNION ALL
SELECT status, count(*), 0 FROM jobs
WHERE status = 'queued' AND lane_id IN (SELECT id FROM lanes WHERE pipeline = $1::text) GROUP BY status
UNION ALL
SELECT status, count(*), 0 FROM jobs WHERE status = 'processing' AND pipeline = $1::text GROUP BY status;

-- name: pipeline_total
SELECT count(*) FROM jobs WHERE pipeline = $1::text;

-- name: run_account
SELECT status, sum(jobs - pruned)::bigint AS jobs, sum(pruned)::bigint AS pruned FROM tallies WHERE run_id = $1::bigint GROUP BY status
UNION ALL
SELECT status, count(*), 0 FROM jobs WHERE run_id = $1::bigint AND status IN ('queued', 'processing') GROUP BY status;

-- name: run_total
SELECT items, (SELECT count(*) FROM jobs WHERE run_id = runs.id) AS jobs FROM runs WHERE id = $1::bigint;

-- name: is_attempt
SELECT 1 FROM attempts WHERE seq = $1::bigint AND job_id = $2::bigint AND dispatch = $3::bigint;

-- name: failure_tally
-- The failed ones among them, by code.
SELECT lane_id, outcome, code, count(*) AS attempts FROM attempts
WHERE seq > $1::bigint AND seq <= $2::bigint AND ended_at > $3::double precision AND outcome IN ('retry', 'dead')
GROUP BY lane_id, outcome, code;

-- name: retries_by_hand
-- Since one line of the operator log, and its last line.
SELECT count(CASE WHEN verb IN ('retry', 'restart') THEN 1 END) AS retries, coalesce(max(id), $1::bigint) AS last FROM operations WHERE id > $1::bigint;

-- name: released_letters
-- How many letters replays have released, ever; pruned ones stay counted.
SELECT coalesce(sum(letters + pruned), 0)::bigint FROM letter_tallies
WHERE replay_id <> 0 AND standing IN ('replaying', 'completed', 'same', 'other', 'cancelled');

-- name: pipeline_lanes
SELECT id FROM lanes WHERE pipeline = $1::text ORDER BY position, id;
