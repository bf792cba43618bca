-- SPDX-License-Identifier: Apache-2.0
-- Replays of many dead letters.

-- name: last_letter
-- With the number of the last act that changed any letter.
SELECT letters_frontier() AS cutoff, (SELECT last FROM letter_moves) AS moves;

-- part: added_replay
(SELECT currval(pg_get_serial_sequence('replays', 'id')));

-- name: log_replay_start
-- Right after the replay was added: its id is not known before.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
VALUES ($1::double precision, $2::text, $3::text, 'replay', {added_replay}::text, $4::text, $5::bigint,
    jsonb_set($6::jsonb, '{replay}', to_jsonb({added_replay}))::text);

-- part: add_letters
ON CONFLICT (replay_id, group_id, standing, part) DO UPDATE SET letters = letter_tallies.letters + excluded.letters;
