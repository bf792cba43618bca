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

-- name: count_marked
-- A window is marked once, so that its marked letters were marked just now.
INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
SELECT replay, group_id, state, marked * sign
FROM (SELECT group_id, state, count(*) AS marked FROM dead_letters
        WHERE id > $2::bigint AND id <= $3::bigint AND replay_id = $1::bigint GROUP BY 1, 2) AS found
    CROSS JOIN (VALUES (0, -1), ($1::bigint, 1)) AS side (replay, sign)
ORDER BY replay, group_id, state
ON CONFLICT (replay_id, group_id, standing, part) DO UPDATE SET letters = letter_tallies.letters + excluded.letters;

-- name: unmark_letters
UPDATE dead_letters SET replay_id = NULL, freed = (SELECT last FROM letter_moves) WHERE id = ANY (ARRAY(
    SELECT id FROM dead_letters WHERE replay_id = $1::bigint AND verdict IS NULL AND state <> 'replaying' ORDER BY id LIMIT $2::bigint))
    AND replay_id = $1::bigint AND verdict IS NULL AND state <> 'replaying'
RETURNING id;
