-- SPDX-License-Identifier: Apache-2.0
-- Reports: counts over many jobs and attempts.

-- name: retry_histogram
-- How many jobs needed how many retries, in all their stages or in one.
SELECT retries, count(*) AS jobs FROM (
    SELECT sum(outcome = 'retry') AS retries FROM attempts
    WHERE lane_id IN (SELECT id FROM lanes WHERE (?1 IS NULL OR pipeline = ?1) AND (?2 IS NULL OR stage = ?2))
    GROUP BY job_id)
GROUP BY retries ORDER BY retries;

-- name: retry_histogram_of_run
SELECT retries, count(*) AS jobs FROM (
    SELECT sum(outcome = 'retry') AS retries
    FROM jobs CROSS JOIN attempts ON job_id = jobs.id JOIN lanes ON lanes.id = attempts.lane_id
    WHERE run_id = ?1 AND (?2 IS NULL OR stage = ?2) GROUP BY job_id)
GROUP BY retries ORDER BY retries;

-- name: error_ranking
SELECT code, count(*) AS attempts, count(DISTINCT job_id) AS jobs, max(ended_at) AS last_at FROM attempts JOIN lanes ON lanes.id = lane_id
WHERE code IS NOT NULL AND (?1 IS NULL OR pipeline = ?1) AND (?2 IS NULL OR stage = ?2) GROUP BY code ORDER BY count(*) DESC, code;

-- name: error_ranking_of_run
SELECT code, count(*) AS attempts, count(DISTINCT job_id) AS jobs, max(ended_at) AS last_at
FROM jobs CROSS JOIN attempts ON job_id = jobs.id JOIN lanes ON lanes.id = attempts.lane_id
WHERE run_id = ?1 AND code IS NOT NULL AND (?2 IS NULL OR stage = ?2) GROUP BY code ORDER BY count(*) DESC, code;

-- part: reliability
SELECT lanes.pipeline, stage, count(*) AS attempts, sum(outcome = 'ok') AS ok, sum(outcome = 'retry') AS retry, sum(outcome = 'hold') AS hold,
    sum(outcome = 'dead') AS dead, sum(outcome = 'crashed') AS crashed, sum(outcome = 'cancelled') AS cancelled, sum(outcome = 'skipped') AS skipped,
    coalesce(avg(CASE WHEN outcome IN ('ok', 'retry', 'dead') THEN outcome = 'ok' END), 0) AS success, avg(ended_at - attempts.started_at) AS seconds;

-- name: stage_reliability
{reliability} FROM attempts JOIN lanes ON lanes.id = lane_id WHERE ?1 IS NULL OR pipeline = ?1 GROUP BY lane_id ORDER BY pipeline, position;

-- name: stage_reliability_of_run
{reliability} FROM jobs CROSS JOIN attempts ON job_id = jobs.id JOIN lanes ON lanes.id = attempts.lane_id
WHERE run_id = ?1 GROUP BY attempts.lane_id ORDER BY position;

-- name: pipeline_account
-- How many jobs a pipeline has in each state. Those of ended jobs are counters that are moved with each job; open ones are counted.
SELECT status, sum(jobs - pruned) AS jobs, sum(pruned) AS pruned FROM tallies JOIN lanes ON lanes.id = lane_id WHERE pipeline = ?1 GROUP BY status
UNION ALL
SELECT status, count(*), 0 FROM jobs WHERE status = 'queued' AND lane_id IN (SELECT id FROM lanes WHERE pipeline = ?1) GROUP BY status
UNION ALL
SELECT status, count(*), 0 FROM jobs WHERE status = 'processing' AND pipeline = ?1 GROUP BY status;

-- name: pipeline_total
SELECT count(*) FROM jobs WHERE pipeline = ?;

-- name: run_account
SELECT status, sum(jobs - pruned) AS jobs, sum(pruned) AS pruned FROM tallies WHERE run_id = ?1 GROUP BY status
UNION ALL
SELECT status, count(*), 0 FROM jobs WHERE run_id = ?1 AND status IN ('queued', 'processing') GROUP BY status;

-- name: run_total
SELECT items, (SELECT count(*) FROM jobs WHERE run_id = runs.id) AS jobs FROM runs WHERE id = ?;

-- name: newest_attempt
-- The attempt that was committed last, and the latest end of the last ones: within a commit they are in no order.
SELECT seq, job_id, dispatch, (SELECT max(ended_at) FROM (SELECT ended_at FROM attempts ORDER BY seq DESC LIMIT 1000)) AS ended_at
FROM attempts ORDER BY seq DESC LIMIT 1;

-- name: is_attempt
SELECT 1 FROM attempts WHERE seq = ? AND job_id = ? AND dispatch = ?;

-- name: attempt_tally
-- Attempts committed after one and up to another, which ended after a time: how many, and how long, by lane, outcome and the upper
-- limits ?4 to ?16. The three are one number, because sorting by numbers costs half of sorting by texts.
SELECT place / 128 AS lane_id, place / 16 % 8 AS outcome, place % 16 AS width, count(*) AS attempts, sum(taken) AS seconds FROM (
    SELECT taken, lane_id * 128 + 16 * CASE outcome WHEN 'ok' THEN 0 WHEN 'retry' THEN 1 WHEN 'hold' THEN 2 WHEN 'dead' THEN 3
        WHEN 'crashed' THEN 4 WHEN 'cancelled' THEN 5 ELSE 6 END + CASE WHEN taken <= ?4 THEN 0 WHEN taken <= ?5 THEN 1
        WHEN taken <= ?6 THEN 2 WHEN taken <= ?7 THEN 3 WHEN taken <= ?8 THEN 4 WHEN taken <= ?9 THEN 5 WHEN taken <= ?10 THEN 6
        WHEN taken <= ?11 THEN 7 WHEN taken <= ?12 THEN 8 WHEN taken <= ?13 THEN 9 WHEN taken <= ?14 THEN 10
        WHEN taken <= ?15 THEN 11 WHEN taken <= ?16 THEN 12 ELSE 13 END AS place
    FROM (SELECT lane_id, outcome, ended_at - started_at AS taken FROM attempts WHERE seq > ?1 AND seq <= ?2 AND ended_at > ?3))
GROUP BY place;

-- name: failure_tally
-- The failed ones among them, by code.
SELECT lane_id, outcome, code, count(*) AS attempts FROM attempts
WHERE seq > ?1 AND seq <= ?2 AND ended_at > ?3 AND (outcome = 'retry' OR outcome = 'dead') GROUP BY 1, 2, 3;

-- name: retries_by_hand
-- Since one line of the operator log, and its last line.
SELECT count(CASE WHEN verb IN ('retry', 'restart') THEN 1 END) AS retries, coalesce(max(id), ?1) AS last FROM operations WHERE id > ?1;

-- name: released_letters
-- How many letters replays have released, ever; pruned ones stay counted.
SELECT coalesce(sum(letters + pruned), 0) FROM letter_tallies
WHERE replay_id <> 0 AND standing IN ('replaying', 'completed', 'same', 'other', 'cancelled');

-- name: attempts_of_stages
-- What burned an attempt, stage by stage of each job and round, in order.
SELECT attempts.job_id, attempts.lane_id, attempts.round, outcome, code, http_status, decision
FROM attempts JOIN lanes ON lanes.id = attempts.lane_id
WHERE burned AND outcome IN ('ok', 'retry', 'dead') AND (?1 IS NULL OR pipeline = ?1) AND (?2 IS NULL OR stage = ?2)
ORDER BY attempts.job_id, attempts.lane_id, attempts.round, attempts.dispatch;

-- name: pipeline_lanes
SELECT id FROM lanes WHERE pipeline = ?1 ORDER BY position;
