-- SPDX-License-Identifier: Apache-2.0
-- Replays of many dead letters.

-- name: last_letter
-- With the number of the last act that changed any letter.
SELECT coalesce(max(id), 0) AS cutoff, (SELECT last FROM letter_moves) AS moves FROM dead_letters;

-- name: add_replay
-- Refused while another replay of the pipeline marks its letters: two at once could not predict how many each will have.
INSERT INTO replays (pipeline, status, filter, options, cutoff, marked_to, expected, pardoned, next_at, driven_until, actor,
    created_at, moves)
SELECT ?1, 'marking', ?2, ?3, ?4, ?5, ?6, ?7, ?9, 0, ?8, ?9, ?10
WHERE NOT EXISTS (SELECT 1 FROM replays WHERE pipeline = ?1 AND ended_at IS NULL AND marked_to < cutoff) RETURNING id;

-- name: log_replay_start
-- Right after the replay was added: its id is not known before.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
VALUES (?1, ?2, ?3, 'replay', last_insert_rowid(), ?4, ?5, json_set(?6, '$.replay', last_insert_rowid()));

-- name: last_configs
-- The config of a letter's stage when it failed.
SELECT letter.id, (SELECT config FROM attempts WHERE attempts.job_id = letter.job_id AND attempts.round = letter.round
    AND attempts.lane_id = letter.lane_id ORDER BY dispatch DESC LIMIT 1) AS config, letter.replay_id
FROM json_each(?1) AS given JOIN dead_letters letter ON letter.id = given.value;

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

-- name: last_ended_of
-- About when the last letters ended: letters are released in the order of their ids. Waiting letters are passed over.
SELECT closed_at FROM dead_letters INDEXED BY dead_letters_replay
WHERE replay_id = ?1 AND closed_at IS NOT NULL AND id < coalesce((
    SELECT min(id) FROM dead_letters INDEXED BY dead_letters_taken
    WHERE replay_id = ?1 AND verdict IS NULL AND state <> 'replaying'), 9e18)
ORDER BY id DESC LIMIT ?2;
