-- SPDX-License-Identifier: Apache-2.0
-- Acts on dead letters: choosing them, changing their state, editing values.

-- name: existing_letters
SELECT id FROM dead_letters WHERE id {in_ids} ORDER BY id;

-- name: letters_to_triage
SELECT id, state, replay_id, moved FROM dead_letters WHERE id {in_ids} ORDER BY id;

-- name: next_move
UPDATE letter_moves SET last = last + 1;

-- name: triage_letters
-- Evidence that was given for another diagnosis proves nothing for this one.
UPDATE dead_letters SET state = 'triaged', diagnosis = $3::text, evidence = NULL, is_safe = 0, moved = (SELECT last FROM letter_moves)
WHERE id {in_ids} AND state = $2::text AND replay_id IS NULL;

-- name: remediate_letters
UPDATE dead_letters SET state = 'ready', evidence = $3::text, is_safe = 1, moved = (SELECT last FROM letter_moves)
WHERE id {in_ids} AND state = $2::text;

-- name: discard_letters
UPDATE dead_letters SET state = 'discarded', replay_id = NULL, moved = (SELECT last FROM letter_moves)
WHERE id {in_ids} AND state = $2::text;

-- name: restore_letters
UPDATE dead_letters SET state = 'open', diagnosis = NULL, evidence = NULL, is_safe = 0, moved = (SELECT last FROM letter_moves),
    freed = (SELECT last FROM letter_moves)
WHERE id {in_ids} AND state = $2::text;

-- name: assign_letters
UPDATE dead_letters SET assignee = $3::text WHERE id {in_ids} AND state = $2::text;

-- name: letter_values
-- The values a letter's job would be replayed with, as they were, and as they were changed last; and whether it came from elsewhere
-- without having been erased here, so that a value may still be supplied.
SELECT letter.state, letter.job_id AS job, jobs.status, jobs.erased_at, lanes.pipeline, lanes.stage,
    CASE $2::text WHEN 'payload' THEN stored.payload ELSE stored.input END AS original,
    (SELECT max(edits.id) FROM edits WHERE edits.letter_id = letter.id AND part = $2::text) AS edit,
    (SELECT after FROM edits WHERE edits.letter_id = letter.id AND part = $2::text ORDER BY edits.id DESC LIMIT 1) AS edited,
    (EXISTS (SELECT 1 FROM imports WHERE imports.job_id = jobs.id)
        AND NOT EXISTS (SELECT 1 FROM operations WHERE subject_kind = 'job' AND subject_id = CAST(jobs.id AS TEXT) AND verb = 'erase'))::integer AS may_be_supplied
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id JOIN values_of_jobs stored ON stored.job_id = jobs.id
    JOIN lanes ON lanes.id = letter.lane_id WHERE letter.id = $1::bigint;

-- name: lock_letter
-- Before `add_edit`, in the same transaction: whoever edits, releases or erases it meanwhile is waited for, so that the next statement sees that.
SELECT letter.id FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id WHERE letter.id = $1::bigint FOR UPDATE;

-- name: add_edit
-- Only on top of the value that was looked at, and only while nothing runs with the old one.
INSERT INTO edits (letter_id, job_id, part, before, after, at, actor)
SELECT letter.id, letter.job_id, $2::text, $3::bytea, $4::bytea, $5::double precision, $6::text
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id
WHERE letter.id = $1::bigint AND letter.state IN ('open', 'triaged', 'ready') AND jobs.status = 'failed'
    AND jobs.erased_at IS NOT DISTINCT FROM $7::double precision
    AND (SELECT max(edits.id) FROM edits WHERE edits.letter_id = $1::bigint AND part = $2::text) IS NOT DISTINCT FROM $8::bigint
RETURNING id;

-- name: supply_payload
UPDATE jobs SET payload = $2::bytea, erased_at = NULL WHERE id = $1::bigint AND status = 'failed' AND payload IS NULL;

-- name: supply_input
UPDATE jobs SET input = $2::bytea, input_from = $3::bigint, erased_at = NULL WHERE id = $1::bigint AND status = 'failed' AND input IS NULL;

-- name: supply_value
INSERT INTO job_values (job_id, dispatch, value) VALUES ($1::bigint, $2::bigint, $3::bytea)
ON CONFLICT (job_id, dispatch) DO UPDATE SET value = excluded.value;

-- name: edits_of_job
SELECT before, after FROM edits WHERE job_id = $1::bigint ORDER BY id;
