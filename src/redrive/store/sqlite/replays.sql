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

-- name: log_replay
-- Before its status changes, in the same transaction: its old status, and how many letters were still to be released, or, for one that
-- has ended, belonged to it.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
SELECT ?1, ?2, ?3, ?4, ?5, ?6,
    CASE WHEN ended_at IS NULL AND marked_to < cutoff THEN expected ELSE (
        SELECT coalesce(sum(letters), 0) FROM letters_by_replay
        WHERE replay_id = replays.id AND (ended_at IS NOT NULL OR standing = 'waiting')) END,
    json_object('before', json_object('status', CASE WHEN closed_at IS NULL THEN status ELSE 'closed' END),
        'after', json_object('status', ?7))
FROM replays WHERE id = ?8;

-- name: first_letter_of
SELECT min(first_letter) FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id WHERE {group_filter};

-- name: is_pipeline_paused
SELECT EXISTS (SELECT 1 FROM lanes WHERE pipeline = ? AND paused_at IS NOT NULL);

-- name: held_of_pipeline
SELECT count(*) FROM (SELECT 1 FROM jobs JOIN lanes ON lanes.id = lane_id
    WHERE lanes.pipeline = ? AND status = 'queued' AND waiting = 'hold' LIMIT 1000);

-- name: recovered_of
-- Recovered letters whose job is complete or skipped, and how many stages succeeded after the one that had failed.
SELECT count(*) AS letters, sum(jobs.status IN ('complete', 'skipped')) AS complete,
    sum((SELECT count(*) FROM attempts WHERE attempts.job_id = letter.job_id AND attempts.round > letter.round AND outcome = 'ok')) AS stages
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id WHERE letter.replay_id = ? AND letter.verdict = 'completed';

-- name: returned_of
SELECT after.code, after.fingerprint, count(*) AS letters, min(after.id) AS first, sum(after.is_escalated) AS escalated
FROM dead_letters letter JOIN letters after ON after.follows = letter.id
WHERE letter.replay_id = ? AND letter.state = 'returned' GROUP BY 1, 2 ORDER BY 3 DESC, 1;

-- name: last_configs
-- The config of a letter's stage when it failed.
SELECT letter.id, (SELECT config FROM attempts WHERE attempts.job_id = letter.job_id AND attempts.round = letter.round
    AND attempts.lane_id = letter.lane_id ORDER BY dispatch DESC LIMIT 1) AS config, letter.replay_id
FROM json_each(?1) AS given JOIN dead_letters letter ON letter.id = given.value;

-- part: replay_columns
id, pipeline, status, cutoff, marked_to, expected, next_at, why, note, driver, driven_until, actor, created_at, ended_at,
    closed_at, moves, filter, options, pardoned;

-- name: replay
SELECT {replay_columns} FROM replays WHERE id = ?;

-- name: replays
SELECT {replay_columns} FROM replays WHERE id < ?1 AND (?2 IS NULL OR pipeline = ?2) ORDER BY id DESC LIMIT ?3;

-- name: live_replays
SELECT {replay_columns} FROM replays WHERE ended_at IS NULL AND status IN ('marking', 'running', 'cancelling') ORDER BY id;

-- name: replay_counts
SELECT standing, letters FROM letters_by_replay WHERE replay_id = ?;

-- name: replay_skips
SELECT kind, count(*) AS letters FROM replay_skips WHERE replay_id = ? GROUP BY kind ORDER BY count(*) DESC, kind;

-- name: skipped_letters
SELECT letter_id, kind, job_id, stage, detail FROM replay_skips WHERE replay_id = ? ORDER BY letter_id LIMIT ?;

-- name: skipped_for
-- The first letters that a replay skipped with one kind of obstacle.
SELECT letter_id, kind, job_id, stage, detail FROM replay_skips WHERE replay_id = ? AND kind = ? ORDER BY letter_id LIMIT ?;

-- name: nearest_replays
SELECT id FROM replays ORDER BY abs(id - ?), id LIMIT 5;

-- name: drive_replay
-- A worker that has stopped or was declared dead drives nothing.
UPDATE replays SET driver = ?1, driven_until = ?2
WHERE id = ?3 AND ended_at IS NULL
    AND (driver IS ?1 OR driven_until < ?4 OR NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = driver));

-- name: mark_letters
-- By id, a window at a time: what is not looked at yet cannot be missed, and what came after the cut-off is never looked at. Not by an
-- index: that would walk all letters of the groups for each window. What came into the set after the start of the replay (after the
-- act ?18, and after ?19 if the filter has a state) was not counted for the person who started it.
UPDATE dead_letters AS letter NOT INDEXED SET replay_id = ?17, counted = counted + 1
WHERE replay_id IS NULL AND {window} AND freed <= ?18 AND moved <= ?19;

-- name: count_marked
-- A window is marked once, so that its marked letters were marked just now.
INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
SELECT column1, group_id, state, marked * column2
FROM (SELECT group_id, state, count(*) AS marked FROM dead_letters WHERE id > ?2 AND id <= ?3 AND replay_id = ?1 GROUP BY 1, 2),
    (VALUES (0, -1), (?1, 1)) WHERE true
ON CONFLICT DO UPDATE SET letters = letters + excluded.letters;

-- name: set_marked_to
UPDATE replays SET marked_to = ?1, status = CASE WHEN ?1 >= cutoff THEN 'running' ELSE status END
WHERE id = ?2 AND driver = ?3 AND status = 'marking' AND marked_to = ?4;

-- name: set_next_release
UPDATE replays SET next_at = ?1 WHERE id = ?2 AND driver = ?3 AND status = 'running';

-- name: stop_replay
UPDATE replays SET status = 'stopped', why = ?1 WHERE id = ?2 AND driver = ?3 AND status = 'running';

-- name: finish_replay
UPDATE replays SET status = 'done', why = NULL, ended_at = ?1 WHERE id = ?2 AND driver = ?3 AND status = 'running';

-- name: pause_replay
UPDATE replays SET status = 'paused', why = ?1 WHERE id = ?2 AND status IN ('marking', 'running');

-- name: resume_replay
UPDATE replays SET status = CASE WHEN marked_to < cutoff THEN 'marking' ELSE 'running' END, why = NULL, pardoned = ?1, next_at = max(next_at, ?2)
WHERE id = ?3 AND status IN ('paused', 'stopped');

-- name: cancel_replay
UPDATE replays SET status = 'cancelling', why = ?1 WHERE id = ?2 AND ended_at IS NULL AND status <> 'cancelling';

-- name: unmark_letters
UPDATE dead_letters SET replay_id = NULL, freed = (SELECT last FROM letter_moves) WHERE id IN (
    SELECT id FROM dead_letters INDEXED BY dead_letters_taken
    WHERE replay_id = ?1 AND verdict IS NULL AND state <> 'replaying' ORDER BY id LIMIT ?2)
RETURNING id;

-- name: end_cancelled
UPDATE replays SET status = 'cancelled', ended_at = ?1 WHERE id = ?2 AND status = 'cancelling' AND NOT EXISTS (
    SELECT 1 FROM dead_letters INDEXED BY dead_letters_taken WHERE replay_id = ?2 AND verdict IS NULL AND state <> 'replaying');

-- name: close_replay
UPDATE replays SET note = ?1, closed_at = ?2 WHERE id = ?3 AND ended_at IS NOT NULL AND closed_at IS NULL;

-- name: skip_letter
INSERT INTO replay_skips (replay_id, letter_id, kind, job_id, stage, detail, at) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: drop_skipped
UPDATE dead_letters SET replay_id = NULL, freed = (SELECT last FROM letter_moves)
WHERE id = ? AND replay_id = ? AND state IN ('open', 'triaged', 'ready');

-- name: put_rules
INSERT INTO replay_rules (pipeline, rules) VALUES (?1, ?2) ON CONFLICT (pipeline) DO UPDATE SET rules = excluded.rules;

-- name: all_rules
SELECT rules, pipeline FROM replay_rules ORDER BY pipeline;

-- name: rules
SELECT rules FROM replay_rules WHERE pipeline = ?;

-- name: wrong_replay_tallies
-- Only letters that have not ended: ended ones stay counted when they are pruned.
SELECT replay_id, counted, found FROM (
    SELECT replay_id, sum(letters) AS counted FROM letters_by_replay WHERE standing IN ('waiting', 'replaying') GROUP BY replay_id)
    FULL JOIN (SELECT replay_id, count(*) AS found FROM dead_letters WHERE replay_id IS NOT NULL AND verdict IS NULL
        GROUP BY replay_id) USING (replay_id)
WHERE coalesce(counted, 0) <> coalesce(found, 0) LIMIT ?;

-- name: last_pause_of
SELECT reason FROM operations WHERE subject_kind = 'replay' AND subject_id = CAST(? AS TEXT) AND verb = 'pause' ORDER BY id DESC LIMIT 1;

-- name: last_ended_of
-- About when the last letters ended: letters are released in the order of their ids. Waiting letters are passed over.
SELECT closed_at FROM dead_letters INDEXED BY dead_letters_replay
WHERE replay_id = ?1 AND closed_at IS NOT NULL AND id < coalesce((
    SELECT min(id) FROM dead_letters INDEXED BY dead_letters_taken
    WHERE replay_id = ?1 AND verdict IS NULL AND state <> 'replaying'), 9e18)
ORDER BY id DESC LIMIT ?2;
