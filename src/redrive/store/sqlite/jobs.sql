-- SPDX-License-Identifier: Apache-2.0
-- Jobs: submitting them, reading one, listing many, cancelling and erasing.

-- name: insert_job
-- A missing value is passed as a placeholder, not as None: `sqlite3` looks for an adapter of each None, which takes longer than writing
-- the row.
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, run_id, ordinal, parent_id, expires_at, payload, created_at)
VALUES (?, ?, 'queued', ?, ?, nullif(?, ''), nullif(?, ''), nullif(?, 0), nullif(?, -1), nullif(?, 0), nullif(?, -1e18), ?, ?);

-- name: insert_trace
INSERT INTO job_traces (job_id, traceparent) VALUES (?, ?);

-- name: traces
SELECT job_id, traceparent FROM json_each(?) CROSS JOIN job_traces ON job_id = value;

-- name: counts
SELECT lanes.pipeline, lanes.stage, 'queued' AS status, count(*) AS jobs FROM jobs JOIN lanes ON lanes.id = lane_id WHERE status = 'queued'
GROUP BY lane_id
UNION ALL
SELECT lanes.pipeline, lanes.stage, 'processing', count(*) FROM jobs JOIN lanes ON lanes.id = lane_id WHERE status = 'processing'
GROUP BY lane_id
UNION ALL
SELECT lanes.pipeline, lanes.stage, status, sum(jobs - pruned) FROM tallies JOIN lanes ON lanes.id = lane_id
GROUP BY lane_id, status HAVING sum(jobs - pruned) > 0;

-- name: recount
SELECT lanes.pipeline, lanes.stage, status, count(*) AS jobs FROM jobs JOIN lanes ON lanes.id = lane_id GROUP BY lane_id, status;

-- name: list_queued
-- The statements that list jobs take the same parameters; each uses another index. Queued jobs are read in the index alone, unless the
-- filter needs more.
{listed}
FROM (SELECT id AS found FROM jobs INDEXED BY jobs_ready
        WHERE status = 'queued' AND id < ?1 AND lane_id IN (
            SELECT lanes.id FROM lanes WHERE (?3 IS NULL OR pipeline = ?3) AND (?4 IS NULL OR stage = ?4))
            AND (?5 IS NULL OR run_id = ?5) AND (?6 IS NULL OR owner = ?6)
        ORDER BY id DESC LIMIT ?7)
    CROSS JOIN jobs ON jobs.id = found JOIN lanes ON lanes.id = lane_id
ORDER BY jobs.id DESC;

-- name: list_processing
{listed}
FROM jobs INDEXED BY jobs_leased CROSS JOIN lanes ON lanes.id = lane_id
WHERE status = 'processing' AND {listed_where}
ORDER BY jobs.id DESC LIMIT ?7;

-- name: list_failed
{listed}
FROM jobs INDEXED BY jobs_failed CROSS JOIN lanes ON lanes.id = lane_id
WHERE status = 'failed' AND {listed_where}
ORDER BY jobs.id DESC LIMIT ?7;

-- name: list_of_key
-- One index has the jobs that hold a key, at most one of each pipeline; the other has those that gave it back.
{listed}
FROM (SELECT id AS found FROM jobs INDEXED BY jobs_key
        WHERE key = ?8 AND status IN ('queued', 'processing', 'complete') AND pipeline IN (SELECT lanes.pipeline FROM lanes)
        UNION ALL SELECT id FROM jobs INDEXED BY jobs_of_key WHERE key = ?8 AND status IN ('failed', 'cancelled', 'skipped'))
    CROSS JOIN jobs ON jobs.id = found JOIN lanes ON lanes.id = lane_id
WHERE (?2 IS NULL OR status = ?2) AND {listed_where}
ORDER BY jobs.id DESC LIMIT ?7;

-- name: events
SELECT seq, job_id AS job, dispatch, lanes.pipeline, lanes.stage, round, attempt, outcome, code, ended_at AS at, decision
FROM attempts JOIN lanes ON lanes.id = lane_id
WHERE seq > ?1 AND (?2 IS NULL OR job_id = ?2) AND (?3 IS NULL OR lanes.pipeline = ?3) ORDER BY seq LIMIT ?4;

-- name: last_event
SELECT coalesce(max(seq), 0) FROM attempts;

-- name: erase_hashes
UPDATE letter_facts SET context = CAST(json_remove(CAST(context AS TEXT), '$.input_sha256') AS BLOB)
WHERE letter_id IN (SELECT id FROM dead_letters WHERE job_id = ?) AND json_valid(CAST(context AS TEXT));
