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
SELECT count(*) AS jobs, min(run_at) AS first_at FROM jobs WHERE lane_id = ? AND status = 'queued' AND run_at <= ?;

-- name: open_letters
SELECT count(*) AS letters, min(first_failure_at) AS first_at FROM dead_letters WHERE state = 'open';

-- name: wrong_letter_tallies
-- Groups whose counters differ from a recount.
SELECT group_id, state, counted, found FROM (
    SELECT group_id, state, sum(letters) AS counted FROM letters_by_group GROUP BY group_id, state)
    FULL JOIN (SELECT group_id, state, count(*) AS found FROM dead_letters GROUP BY group_id, state) USING (group_id, state)
WHERE coalesce(counted, 0) <> coalesce(found, 0) LIMIT ?;

-- name: jobs_without_letter
-- Failed jobs without exactly one live letter and its facts, and jobs that have not failed with one.
SELECT jobs.id FROM jobs WHERE (status = 'failed') <> (SELECT count(*) FROM letters
    WHERE job_id = jobs.id AND state IN ('open', 'triaged', 'ready', 'discarded')) LIMIT ?;

-- name: prune_window
SELECT id, status, finished_at, created_at, EXISTS (SELECT 1 FROM outbox WHERE job_id = jobs.id) AS is_noticed
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

-- name: tend_attempts
-- A file has no partitions.
SELECT ?1 IS NULL;

-- name: prune_jobs
DELETE FROM jobs WHERE id IN (SELECT jobs.id FROM jobs JOIN json_each(?1) AS given ON jobs.id = given.value
    WHERE status = ?2 AND finished_at < ?3)
RETURNING id;

-- name: prunable_runs
-- A paused run may be resumed, and a run with an open job was replayed in part.
SELECT id FROM runs WHERE ended_at < ? AND status <> 'paused' AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE run_id = runs.id AND jobs.finished_at IS NULL)
ORDER BY id;

-- name: prune_run
DELETE FROM runs WHERE id = ?1 AND ended_at < ?2 AND status <> 'paused' AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE run_id = ?1 AND jobs.finished_at IS NULL);

-- name: keep_run_tallies
-- Its jobs stay counted, as jobs without a run.
INSERT INTO tallies (run_id, lane_id, status, jobs, pruned)
SELECT 0, lane_id, status, jobs, pruned FROM tallies WHERE run_id = ?1
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs, pruned = pruned + excluded.pruned;

-- name: prune_run_tallies
DELETE FROM tallies WHERE run_id = ?;

-- name: leave_run
UPDATE jobs SET run_id = NULL, ordinal = NULL WHERE run_id = ?;

-- name: leave_run_letters
UPDATE dead_letters SET run_id = NULL WHERE run_id = ?;

-- name: put_retention
INSERT INTO retentions (name, ages, cron, zone, next_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET ages = excluded.ages,
    next_at = CASE WHEN cron = excluded.cron AND zone = excluded.zone THEN next_at ELSE excluded.next_at END,
    cron = excluded.cron, zone = excluded.zone;

-- name: retention
SELECT ages, cron, zone FROM retentions WHERE name = ?;

-- name: retentions
SELECT name, NULL AS pipeline, cron, zone, next_at, last_at, ages AS prunes, deleted FROM retentions ORDER BY name;

-- name: due_retentions
SELECT name, ages, cron, zone, next_at FROM retentions WHERE next_at <= ? ORDER BY name;

-- name: drive_retention
UPDATE retentions SET driver = ?1, driven_until = ?2
WHERE name = ?3 AND next_at = ?4 AND (driver IS NULL OR driver = ?1 OR driven_until < ?5);

-- name: end_retention
UPDATE retentions SET next_at = ?1, last_at = ?2, deleted = ?3, driver = NULL, driven_until = 0 WHERE name = ?4 AND driver = ?5;

-- name: drop_retention
DELETE FROM retentions WHERE name = ?;
