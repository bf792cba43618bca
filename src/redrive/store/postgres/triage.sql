-- SPDX-License-Identifier: Apache-2.0
-- Acts on dead letters: choosing them, changing their state, editing values.

-- name: existing_letters
SELECT id FROM dead_letters WHERE id = {given_ids} ORDER BY id;

-- name: letters_to_triage
SELECT id, state, replay_id, moved FROM dead_letters WHERE id = {given_ids} ORDER BY id;

-- name: triage_letters
-- Evidence that was given for another diagnosis proves nothing for this one.
UPDATE dead_letters SET state = 'triaged', diagnosis = $3::text, evidence = NULL, is_safe = 0, moved = (SELECT last FROM letter_moves)
WHERE id = {given_ids} AND state = $2::text AND replay_id IS NULL;

-- name: remediate_letters
UPDATE dead_letters SET state = 'ready', evidence = $3::text, is_safe = 1, moved = (SELECT last FROM letter_moves)
WHERE id = {given_ids} AND state = $2::text;

-- name: discard_letters
UPDATE dead_letters SET state = 'discarded', replay_id = NULL, moved = (SELECT last FROM letter_moves)
WHERE id = {given_ids} AND state = $2::text;

-- name: restore_letters
UPDATE dead_letters SET state = 'open', diagnosis = NULL, evidence = NULL, is_safe = 0, moved = (SELECT last FROM letter_moves),
    freed = (SELECT last FROM letter_moves)
WHERE id = {given_ids} AND state = $2::text;

-- name: assign_letters
UPDATE dead_letters SET assignee = $3::text WHERE id = {given_ids} AND state = $2::text;

-- name: lock_letter
-- Before `add_edit`, in the same transaction: whoever edits, releases or erases it meanwhile is waited for, so that the next statement sees that.
SELECT letter.id FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id WHERE letter.id = $1::bigint FOR UPDATE;
