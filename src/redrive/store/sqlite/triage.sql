-- SPDX-License-Identifier: Apache-2.0
-- Acts on dead letters: choosing them, changing their state, editing values.

-- name: existing_letters
SELECT id FROM dead_letters WHERE id IN (SELECT value FROM json_each(?));

-- name: letters_to_triage
SELECT id, state, replay_id, moved FROM dead_letters WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id;

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

-- name: lock_letter
-- Before `add_edit`: here the transaction keeps everybody else out already.
SELECT id FROM dead_letters WHERE id = ?1;
