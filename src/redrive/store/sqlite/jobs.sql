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

-- name: events
{event}
WHERE seq > ?1 AND (?2 IS NULL OR job_id = ?2) AND (?3 IS NULL OR lanes.pipeline = ?3) ORDER BY seq LIMIT ?4;

-- name: last_event
SELECT coalesce(max(seq), 0) FROM attempts;

-- name: erase_hashes
UPDATE letter_facts SET context = CAST(json_remove(CAST(context AS TEXT), '$.input_sha256') AS BLOB)
WHERE letter_id IN (SELECT id FROM dead_letters WHERE job_id = ?) AND json_valid(CAST(context AS TEXT));
