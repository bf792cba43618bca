-- SPDX-License-Identifier: Apache-2.0
-- Acts on dead letters: choosing them, changing their state, editing values.

-- name: existing_letters
SELECT id FROM dead_letters WHERE id IN (SELECT value FROM json_each(?));

-- name: letters_to_triage
SELECT id, state, replay_id, moved FROM dead_letters WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id;

-- name: next_move
UPDATE letter_moves SET last = last + 1;

-- name: triage_letters
-- Evidence that was given for another diagnosis proves nothing for this one.
UPDATE dead_letters SET state = 'triaged', diagnosis = ?3, evidence = NULL, is_safe = 0, moved = (SELECT last FROM letter_moves)
WHERE id IN (SELECT value FROM json_each(?1)) AND state = ?2 AND replay_id IS NULL;

-- name: remediate_letters
UPDATE dead_letters SET state = 'ready', evidence = ?3, is_safe = 1, moved = (SELECT last FROM letter_moves)
WHERE id IN (SELECT value FROM json_each(?1)) AND state = ?2;

-- name: discard_letters
UPDATE dead_letters SET state = 'discarded', replay_id = NULL, moved = (SELECT last FROM letter_moves)
WHERE id IN (SELECT value FROM json_each(?1)) AND state = ?2;

-- name: restore_letters
UPDATE dead_letters SET state = 'open', diagnosis = NULL, evidence = NULL, is_safe = 0, moved = (SELECT last FROM letter_moves),
    freed = (SELECT last FROM letter_moves)
WHERE id IN (SELECT value FROM json_each(?1)) AND state = ?2;

-- name: assign_letters
UPDATE dead_letters SET assignee = ?3 WHERE id IN (SELECT value FROM json_each(?1)) AND state = ?2;

-- name: letter_values
-- The values a letter's job would be replayed with, as they were, and as they were changed last; and whether it came from elsewhere
-- without having been erased here, so that a value may still be supplied.
SELECT letter.state, letter.job_id AS job, jobs.status, jobs.erased_at, lanes.pipeline, lanes.stage,
    CASE ?2 WHEN 'payload' THEN stored.payload ELSE stored.input END AS original,
    (SELECT max(edits.id) FROM edits WHERE edits.letter_id = letter.id AND part = ?2) AS edit,
    (SELECT after FROM edits WHERE edits.letter_id = letter.id AND part = ?2 ORDER BY edits.id DESC LIMIT 1) AS edited,
    EXISTS (SELECT 1 FROM imports WHERE imports.job_id = jobs.id)
        AND NOT EXISTS (SELECT 1 FROM operations WHERE subject_kind = 'job' AND subject_id = CAST(jobs.id AS TEXT) AND verb = 'erase') AS may_be_supplied
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id JOIN values_of_jobs stored ON stored.job_id = jobs.id
    JOIN lanes ON lanes.id = letter.lane_id WHERE letter.id = ?1;

-- name: lock_letter
-- Before `add_edit`: here the transaction keeps everybody else out already.
SELECT id FROM dead_letters WHERE id = ?1;

-- name: add_edit
-- Only on top of the value that was looked at, and only while nothing runs with the old one.
INSERT INTO edits (letter_id, job_id, part, before, after, at, actor)
SELECT letter.id, letter.job_id, ?2, ?3, ?4, ?5, ?6 FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id
WHERE letter.id = ?1 AND letter.state IN ('open', 'triaged', 'ready') AND jobs.status = 'failed' AND jobs.erased_at IS ?7
    AND (SELECT max(edits.id) FROM edits WHERE edits.letter_id = ?1 AND part = ?2) IS ?8
RETURNING id;

-- name: supply_payload
UPDATE jobs SET payload = ?2, erased_at = NULL WHERE id = ?1 AND status = 'failed' AND payload IS NULL;

-- name: supply_input
UPDATE jobs SET input = ?2, input_from = ?3, erased_at = NULL WHERE id = ?1 AND status = 'failed' AND input IS NULL;

-- name: supply_value
INSERT INTO job_values (job_id, dispatch, value) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET value = excluded.value;

-- name: edits_of_job
SELECT before, after FROM edits WHERE job_id = ? ORDER BY id;
