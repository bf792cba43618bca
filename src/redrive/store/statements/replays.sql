-- SPDX-License-Identifier: Apache-2.0
-- Replays of many dead letters.

-- name: log_replay
-- Before its status changes, in the same transaction: its old status, and how many letters were still to be released, or, for one that
-- has ended, belonged to it.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
SELECT $1::double precision, $2::text, $3::text, $4::text, $5::text, $6::text,
    CASE WHEN ended_at IS NULL AND marked_to < cutoff THEN expected ELSE (
        SELECT coalesce(sum(letters), 0)::bigint FROM letters_by_replay
        WHERE replay_id = replays.id AND (ended_at IS NOT NULL OR standing = 'waiting')) END,
    json_build_object('before', json_build_object('status', CASE WHEN closed_at IS NULL THEN status ELSE 'closed' END),
        'after', json_build_object('status', $7::text))::text
FROM replays WHERE id = $8::bigint;

-- name: add_replay
-- Refused while another replay of the pipeline marks its letters: two at once could not predict how many each will have. Of two that are
-- added at the same moment, the index of marking replays refuses one.
INSERT INTO replays (pipeline, status, filter, options, cutoff, marked_to, expected, pardoned, next_at, driven_until, actor,
    created_at, moves)
SELECT $1::text, 'marking', $2::bytea, $3::bytea, $4::bigint, $5::bigint, $6::bigint, $7::bytea, $9::double precision, 0, $8::text,
    $9::double precision, $10::bigint
WHERE NOT EXISTS (SELECT 1 FROM replays WHERE pipeline = $1::text AND ended_at IS NULL AND marked_to < cutoff)
ON CONFLICT DO NOTHING RETURNING id;

-- name: first_letter_of
SELECT min(first_letter) FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id WHERE {group_filter};

-- name: is_pipeline_paused
SELECT EXISTS (SELECT 1 FROM lanes WHERE pipeline = $1::text AND paused_at IS NOT NULL)::integer;

-- name: held_of_pipeline
SELECT count(*) FROM (SELECT 1 FROM jobs JOIN lanes ON lanes.id = lane_id
    WHERE lanes.pipeline = $1::text AND status = 'queued' AND waiting = 'hold' LIMIT 1000) AS held;

-- name: recovered_of
-- Recovered letters whose job is complete or skipped, and how many stages succeeded after the one that had failed.
SELECT count(*) AS letters, sum((jobs.status IN ('complete', 'skipped'))::integer)::bigint AS complete,
    sum((SELECT count(*) FROM attempts
        WHERE attempts.job_id = letter.job_id AND attempts.round > letter.round AND outcome = 'ok'))::bigint AS stages
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id WHERE letter.replay_id = $1::bigint AND letter.outcome = 'completed';

-- name: returned_of
SELECT after.code, after.fingerprint AS "group", count(*) AS letters, min(after.id) AS sample, sum(after.is_escalated)::bigint AS escalated
FROM dead_letters letter JOIN letters after ON after.follows = letter.id
WHERE letter.replay_id = $1::bigint AND letter.state = 'returned'
GROUP BY after.code, after.fingerprint ORDER BY count(*) DESC, after.code, after.fingerprint;

-- name: last_configs
-- The config of a letter's stage when it failed.
SELECT letter.id, (SELECT config FROM attempts WHERE attempts.job_id = letter.job_id AND attempts.round = letter.round
    AND attempts.lane_id = letter.lane_id ORDER BY dispatch DESC LIMIT 1) AS config, letter.replay_id
FROM dead_letters letter WHERE letter.id {in_ids};

-- part: replay_columns
id, pipeline, status, cutoff, marked_to, expected, next_at, reason, note, driver, driven_until, actor, created_at, ended_at,
    closed_at, moves, filter, options, pardoned

-- name: replay
SELECT {replay_columns} FROM replays WHERE id = $1::bigint;

-- name: replays
SELECT {replay_columns} FROM replays WHERE id < $1::bigint AND ($2::text IS NULL OR pipeline = $2::text) ORDER BY id DESC LIMIT $3::bigint;

-- name: live_replays
SELECT {replay_columns} FROM replays WHERE ended_at IS NULL AND status IN ('marking', 'running', 'cancelling') ORDER BY id;

-- name: replay_counts
SELECT standing, letters FROM letters_by_replay WHERE replay_id = $1::bigint;

-- name: replay_skips
SELECT kind, count(*) AS letters FROM replay_skips WHERE replay_id = $1::bigint GROUP BY kind ORDER BY count(*) DESC, kind;

-- name: skipped_letters
SELECT letter_id, kind, job_id, stage, detail FROM replay_skips WHERE replay_id = $1::bigint ORDER BY letter_id LIMIT $2::bigint;

-- name: skipped_for
-- The first letters that a replay skipped with one kind of obstacle.
SELECT letter_id, kind, job_id, stage, detail FROM replay_skips WHERE replay_id = $1::bigint AND kind = $2::text
ORDER BY letter_id LIMIT $3::bigint;

-- name: nearest_replays
SELECT id FROM replays ORDER BY abs(id - $1::bigint), id LIMIT 5;

-- name: drive_replay
-- A worker that has stopped or was declared dead drives nothing.
UPDATE replays SET driver = $1::text, driven_until = $2::double precision
WHERE id = $3::bigint AND ended_at IS NULL AND (driver IS NOT DISTINCT FROM $1::text OR driven_until < $4::double precision
    OR NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = driver));

-- name: mark_letters
-- By id, a window at a time: what is not looked at yet cannot be missed, and what came after the cut-off is never looked at. What came
-- into the set after the start of the replay (after the act $18, and after $19 if the filter has a state) was not counted for the
-- person who started it.
UPDATE dead_letters AS letter /* NOT INDEXED */ SET replay_id = $17::bigint, counted = counted + 1
WHERE replay_id IS NULL AND {window} AND freed <= $18::bigint AND moved <= $19::bigint;

-- name: count_marked
-- A window is marked once, so that its marked letters were marked just now.
INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
SELECT column1, group_id, state, marked * column2
FROM (SELECT group_id, state, count(*) AS marked FROM dead_letters
        WHERE id > $2::bigint AND id <= $3::bigint AND replay_id = $1::bigint GROUP BY 1, 2) AS found
    CROSS JOIN (VALUES (0, -1), ($1::bigint, 1)) AS side
ORDER BY 1, 2, 3 {add_letters};

-- name: set_marked_to
UPDATE replays SET marked_to = $1::bigint, status = CASE WHEN $1::bigint >= cutoff THEN 'running' ELSE status END
WHERE id = $2::bigint AND driver = $3::text AND status = 'marking' AND marked_to = $4::bigint;

-- name: set_next_release
UPDATE replays SET next_at = $1::double precision WHERE id = $2::bigint AND driver = $3::text AND status = 'running';

-- name: stop_replay
UPDATE replays SET status = 'stopped', reason = $1::text WHERE id = $2::bigint AND driver = $3::text AND status = 'running';

-- name: finish_replay
UPDATE replays SET status = 'done', reason = NULL, ended_at = $1::double precision
WHERE id = $2::bigint AND driver = $3::text AND status = 'running';

-- name: pause_replay
UPDATE replays SET status = 'paused', reason = $1::text WHERE id = $2::bigint AND status IN ('marking', 'running');

-- name: resume_replay
UPDATE replays SET status = CASE WHEN marked_to < cutoff THEN 'marking' ELSE 'running' END, reason = NULL, pardoned = $1::bytea,
    next_at = greatest(next_at, $2::double precision)
WHERE id = $3::bigint AND status IN ('paused', 'stopped');

-- name: cancel_replay
UPDATE replays SET status = 'cancelling', reason = $1::text WHERE id = $2::bigint AND ended_at IS NULL AND status <> 'cancelling';

-- part: marked_letters
SELECT id FROM dead_letters /* INDEXED BY dead_letters_taken */
    WHERE replay_id = $1::bigint AND outcome IS NULL AND state <> 'replaying' ORDER BY id LIMIT $2::bigint;

-- name: unmark_letters
UPDATE dead_letters /* NOT INDEXED */ SET replay_id = NULL, freed = (SELECT last FROM letter_moves)
WHERE id = ANY (ARRAY({marked_letters})) AND replay_id = $1::bigint AND outcome IS NULL AND state <> 'replaying'
RETURNING id;

-- name: end_cancelled
UPDATE replays SET status = 'cancelled', ended_at = $1::double precision WHERE id = $2::bigint AND status = 'cancelling' AND NOT EXISTS (
    SELECT 1 FROM dead_letters /* INDEXED BY dead_letters_taken */ WHERE replay_id = $2::bigint AND outcome IS NULL AND state <> 'replaying');

-- name: close_replay
UPDATE replays SET note = $1::text, closed_at = $2::double precision WHERE id = $3::bigint AND ended_at IS NOT NULL AND closed_at IS NULL;

-- name: skip_letter
INSERT INTO replay_skips (replay_id, letter_id, kind, job_id, stage, detail, at)
VALUES ($1::bigint, $2::bigint, $3::text, $4::bigint, $5::text, $6::text, $7::double precision) ON CONFLICT DO NOTHING;

-- name: drop_skipped
UPDATE dead_letters SET replay_id = NULL, freed = (SELECT last FROM letter_moves)
WHERE id = $1::bigint AND replay_id = $2::bigint AND state IN ('open', 'triaged', 'ready');

-- name: put_rules
INSERT INTO replay_rules (pipeline, rules) VALUES ($1::text, $2::bytea) ON CONFLICT (pipeline) DO UPDATE SET rules = excluded.rules;

-- name: all_rules
SELECT rules, pipeline FROM replay_rules ORDER BY pipeline;

-- name: rules
SELECT rules FROM replay_rules WHERE pipeline = $1::text;

-- name: wrong_replay_tallies
-- Only letters that have not ended: ended ones stay counted when they are pruned.
SELECT replay_id, counted, found FROM (
    SELECT replay_id, sum(letters)::bigint AS counted FROM letters_by_replay WHERE standing IN ('waiting', 'replaying')
    GROUP BY replay_id) AS tallied
    FULL JOIN (SELECT replay_id, count(*) AS found FROM dead_letters WHERE replay_id IS NOT NULL AND outcome IS NULL
        GROUP BY replay_id) AS present USING (replay_id)
WHERE coalesce(counted, 0) <> coalesce(found, 0) ORDER BY replay_id LIMIT $1::bigint;

-- name: last_pause_of
SELECT reason FROM operations WHERE subject_kind = 'replay' AND subject_id = CAST($1::bigint AS TEXT) AND verb = 'pause' ORDER BY id DESC LIMIT 1;

-- name: last_ended_of
-- About when the last letters ended: letters are released in the order of their ids. Waiting letters are passed over.
SELECT closed_at FROM dead_letters /* INDEXED BY dead_letters_replay */
WHERE replay_id = $1::bigint AND closed_at IS NOT NULL AND id < coalesce((
    SELECT min(id) FROM dead_letters /* INDEXED BY dead_letters_taken */
    WHERE replay_id = $1::bigint AND outcome IS NULL AND state <> 'replaying'), 9223372036854775807)
ORDER BY id DESC LIMIT $2::bigint;
