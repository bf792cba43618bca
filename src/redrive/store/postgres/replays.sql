-- SPDX-License-Identifier: Apache-2.0
-- Replays of many dead letters.

-- name: last_letter
-- With the number of the last act that changed any letter.
SELECT letters_frontier() AS cutoff, (SELECT last FROM letter_moves) AS moves;

-- name: add_replay
-- Refused while another replay of the pipeline marks its letters: two at once could not predict how many each will have. Of two that are
-- added at the same moment, the index of marking replays refuses one.
INSERT INTO replays (pipeline, status, filter, options, cutoff, marked_to, expected, pardoned, next_at, driven_until, actor,
    created_at, moves)
SELECT $1::text, 'marking', $2::bytea, $3::bytea, $4::bigint, $5::bigint, $6::bigint, $7::bytea, $9::double precision, 0, $8::text,
    $9::double precision, $10::bigint
WHERE NOT EXISTS (SELECT 1 FROM replays WHERE pipeline = $1::text AND ended_at IS NULL AND marked_to < cutoff)
ON CONFLICT DO NOTHING RETURNING id;

-- part: added_replay
(SELECT currval(pg_get_serial_sequence('replays', 'id')));

-- name: log_replay_start
-- Right after the replay was added: its id is not known before.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
VALUES ($1::double precision, $2::text, $3::text, 'replay', {added_replay}::text, $4::text, $5::bigint,
    jsonb_set($6::jsonb, '{replay}', to_jsonb({added_replay}))::text);

-- name: last_configs
-- The config of a letter's stage when it failed.
SELECT letter.id, (SELECT config FROM attempts WHERE attempts.job_id = letter.job_id AND attempts.round = letter.round
    AND attempts.lane_id = letter.lane_id ORDER BY dispatch DESC LIMIT 1) AS config, letter.replay_id
FROM dead_letters letter WHERE letter.id = {given_ids};

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

-- name: last_ended_of
-- About when the last letters ended: letters are released in the order of their ids. Waiting letters are passed over.
SELECT closed_at FROM dead_letters
WHERE replay_id = $1::bigint AND closed_at IS NOT NULL AND id < coalesce((
    SELECT min(id) FROM dead_letters WHERE replay_id = $1::bigint AND verdict IS NULL AND state <> 'replaying'), 9223372036854775807)
ORDER BY id DESC LIMIT $2::bigint;
