-- SPDX-License-Identifier: Apache-2.0
-- Upkeep: health of the database and of the work, and pruning.

-- name: database_name
-- As people know it.
SELECT current_database() || ', schema ' || current_schema();

-- name: database_file
-- There is none: its server keeps it.
SELECT '' AS file;

-- name: database_size
-- With indexes and values kept apart.
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r';

-- name: schema_version
SELECT version AS user_version FROM installation;

-- name: integrity
-- The server checks its pages itself. What can be wrong is an index whose making was interrupted: it may miss rows.
SELECT coalesce('index ' || relname || ' is not valid: REINDEX INDEX ' || relname, 'ok') AS integrity_check
FROM (SELECT 1) AS one LEFT JOIN (
    SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE relnamespace = current_schema()::regnamespace AND NOT (indisvalid AND indisready)) AS broken ON true
ORDER BY 1 LIMIT 20;

-- name: broken_references
-- Foreign keys hold at all times, except those that were added without looking at the rows that were there.
SELECT conrelid::regclass::text AS "table", confrelid::regclass::text AS parent, count(*) AS rows FROM pg_constraint
WHERE contype = 'f' AND NOT convalidated AND connamespace = current_schema()::regnamespace GROUP BY 1, 2;

-- name: ownerless_jobs
-- Leased jobs are few; to have them in order, all jobs would be read.
WITH leased AS MATERIALIZED (SELECT id, worker_id FROM jobs WHERE status = 'processing')
SELECT id FROM leased WHERE NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = worker_id) ORDER BY id LIMIT $1::bigint;

-- name: prune_window
-- Looked up for each of these jobs: to find out whether one exists, all notices would be read.
SELECT id, status, finished_at, created_at, ((SELECT 1 FROM outbox WHERE job_id = jobs.id LIMIT 1) IS NOT NULL)::integer AS is_noticed
FROM jobs WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint;

-- part: pruned_jobs
-- $1 ids as JSON, $2 status, $3 finished before.
SELECT jobs.id FROM jobs WHERE jobs.id = {given_ids} AND status = $2::text AND finished_at < $3::double precision;

-- name: prune_values
DELETE FROM job_values WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: prune_edits
DELETE FROM edits WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: prune_notices
DELETE FROM outbox WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: prune_letters
DELETE FROM dead_letters WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: prune_attempts
DELETE FROM attempts WHERE job_id = ANY (ARRAY({pruned_jobs}));

-- name: tend_attempts
SELECT tend_attempts($1::double precision);

-- name: fold_tallies
-- Counters of connections that have gone are added to those of part 0.
WITH gone AS (DELETE FROM tallies WHERE (run_id, lane_id, status, part) IN (
        SELECT run_id, lane_id, status, part FROM tallies WHERE part <> 0 AND NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = part)
        FOR UPDATE SKIP LOCKED)
    RETURNING run_id, lane_id, status, jobs, pruned)
INSERT INTO tallies (run_id, lane_id, status, jobs, pruned, part)
SELECT run_id, lane_id, status, sum(jobs), sum(pruned), 0 FROM gone GROUP BY run_id, lane_id, status ORDER BY run_id, lane_id, status
ON CONFLICT (run_id, lane_id, status, part) DO UPDATE SET jobs = tallies.jobs + excluded.jobs, pruned = tallies.pruned + excluded.pruned;

-- name: fold_letter_tallies
WITH gone AS (DELETE FROM letter_tallies WHERE (replay_id, group_id, standing, part) IN (
        SELECT replay_id, group_id, standing, part FROM letter_tallies WHERE part <> 0 AND NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = part)
        FOR UPDATE SKIP LOCKED)
    RETURNING replay_id, group_id, standing, letters, pruned)
INSERT INTO letter_tallies (replay_id, group_id, standing, letters, pruned, part)
SELECT replay_id, group_id, standing, sum(letters), sum(pruned), 0 FROM gone GROUP BY replay_id, group_id, standing ORDER BY replay_id, group_id, standing
ON CONFLICT (replay_id, group_id, standing, part) DO UPDATE SET letters = letter_tallies.letters + excluded.letters, pruned = letter_tallies.pruned + excluded.pruned;

-- name: fold_letter_trend
WITH gone AS (DELETE FROM letter_trend WHERE (group_id, hour, part) IN (
        SELECT group_id, hour, part FROM letter_trend WHERE part <> 0 AND NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = part)
        FOR UPDATE SKIP LOCKED)
    RETURNING group_id, hour, letters)
INSERT INTO letter_trend (group_id, hour, letters, part)
SELECT group_id, hour, sum(letters), 0 FROM gone GROUP BY group_id, hour ORDER BY group_id, hour
ON CONFLICT (group_id, hour, part) DO UPDATE SET letters = letter_trend.letters + excluded.letters;

-- name: prune_jobs
DELETE FROM jobs WHERE id = {given_ids} AND status = $2::text AND finished_at < $3::double precision RETURNING id;

-- name: keep_run_tallies
-- Its jobs stay counted, as jobs without a run.
INSERT INTO tallies (run_id, lane_id, status, jobs, pruned)
SELECT 0, lane_id, status, sum(jobs), sum(pruned) FROM tallies WHERE run_id = $1::bigint
GROUP BY lane_id, status ORDER BY lane_id, status
ON CONFLICT (run_id, lane_id, status, part) DO UPDATE
    SET jobs = tallies.jobs + excluded.jobs, pruned = tallies.pruned + excluded.pruned;
