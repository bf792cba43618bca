-- SPDX-License-Identifier: Apache-2.0
-- Export and import of dead letters.

-- name: exported_letters
SELECT {letter_columns} FROM letters letter JOIN lanes ON lanes.id = letter.lane_id
WHERE letter.id IN (SELECT value FROM json_each(?)) ORDER BY letter.id;

-- name: exported_jobs
SELECT letter.id AS letter, lanes.position, jobs.status, jobs.priority, jobs.created_at, jobs.erased_at, jobs.origin, jobs.restarts
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id JOIN lanes ON lanes.id = letter.lane_id
WHERE letter.id IN (SELECT value FROM json_each(?));

-- name: pipelines_of_letters
SELECT DISTINCT pipeline FROM dead_letters letter JOIN lanes ON lanes.id = lane_id
WHERE letter.id IN (SELECT value FROM json_each(?)) ORDER BY pipeline;

-- name: known_imports
SELECT letter FROM imports WHERE origin = ? AND letter IN (SELECT value FROM json_each(?));
