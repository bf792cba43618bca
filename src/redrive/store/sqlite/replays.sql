-- SPDX-License-Identifier: Apache-2.0
-- Replays of many dead letters.

-- name: last_letter
-- With the number of the last act that changed any letter.
SELECT coalesce(max(id), 0) AS cutoff, (SELECT last FROM letter_moves) AS moves FROM dead_letters;

-- name: log_replay_start
-- Right after the replay was added: its id is not known before.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
VALUES (?1, ?2, ?3, 'replay', last_insert_rowid(), ?4, ?5, json_set(?6, '$.replay', last_insert_rowid()));

-- name: count_marked
-- A window is marked once, so that its marked letters were marked just now.
INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
SELECT column1, group_id, state, marked * column2
FROM (SELECT group_id, state, count(*) AS marked FROM dead_letters WHERE id > ?2 AND id <= ?3 AND replay_id = ?1 GROUP BY 1, 2),
    (VALUES (0, -1), (?1, 1)) WHERE true
ON CONFLICT DO UPDATE SET letters = letters + excluded.letters;

-- name: unmark_letters
UPDATE dead_letters SET replay_id = NULL, freed = (SELECT last FROM letter_moves) WHERE id IN (
    SELECT id FROM dead_letters INDEXED BY dead_letters_taken
    WHERE replay_id = ?1 AND verdict IS NULL AND state <> 'replaying' ORDER BY id LIMIT ?2)
RETURNING id;
