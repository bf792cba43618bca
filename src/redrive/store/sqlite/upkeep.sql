-- SPDX-License-Identifier: Apache-2.0
-- Upkeep: health of the file and of the work, and pruning.

-- name: database_name
-- As people know it.
SELECT coalesce(nullif(file, ''), 'memory') FROM pragma_database_list WHERE name = 'main';

-- name: database_file
SELECT file FROM pragma_database_list WHERE name = 'main';

-- name: database_size
SELECT page_count * page_size AS bytes FROM pragma_page_count CROSS JOIN pragma_page_size;

-- name: schema_version
SELECT user_version FROM pragma_user_version;

-- name: integrity
SELECT integrity_check FROM pragma_integrity_check(20);

-- name: broken_references
SELECT "table", parent, count(*) AS rows FROM pragma_foreign_key_check GROUP BY 1, 2;

-- name: tend_attempts
-- A file has no partitions.
SELECT ?1 IS NULL;

-- name: fold_tallies
-- All connections to a file count in the same rows: there is nothing to add up, here and in the next two.
UPDATE tallies SET jobs = jobs WHERE false;

-- name: fold_letter_tallies
UPDATE letter_tallies SET letters = letters WHERE false;

-- name: fold_letter_trend
UPDATE letter_trend SET letters = letters WHERE false;

-- name: keep_run_tallies
-- Its jobs stay counted, as jobs without a run.
INSERT INTO tallies (run_id, lane_id, status, jobs, pruned)
SELECT 0, lane_id, status, jobs, pruned FROM tallies WHERE run_id = ?1
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs, pruned = pruned + excluded.pruned;
