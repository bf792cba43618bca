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

-- name: keep_run_tallies
-- Its jobs stay counted, as jobs without a run.
INSERT INTO tallies (run_id, lane_id, status, jobs, pruned)
SELECT 0, lane_id, status, sum(jobs), sum(pruned) FROM tallies WHERE run_id = $1::bigint
GROUP BY lane_id, status ORDER BY lane_id, status
ON CONFLICT (run_id, lane_id, status, part) DO UPDATE
    SET jobs = tallies.jobs + excluded.jobs, pruned = tallies.pruned + excluded.pruned;
