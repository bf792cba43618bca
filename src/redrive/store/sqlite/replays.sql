-- SPDX-License-Identifier: Apache-2.0
-- Replays of many dead letters.

-- name: last_letter
-- With the number of the last act that changed any letter.
SELECT coalesce(max(id), 0) AS cutoff, (SELECT last FROM letter_moves) AS moves FROM dead_letters;

-- name: log_replay_start
-- Right after the replay was added: its id is not known before.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
VALUES (?1, ?2, ?3, 'replay', last_insert_rowid(), ?4, ?5, json_set(?6, '$.replay', last_insert_rowid()));

-- part: add_letters
ON CONFLICT DO UPDATE SET letters = letters + excluded.letters;
