-- SPDX-License-Identifier: Apache-2.0
-- What people decide about dead letters: what is recorded about them, changed values, erasing, export and import.

-- name: log_letters
INSERT INTO operations (at, actor, verb, subject, reason, letters, change) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: log_erase
-- Before it is done, in the same transaction.
INSERT INTO operations (at, actor, verb, subject, reason, letters, change)
SELECT ?1, ?2, ?3, ?4, ?5, (SELECT count(*) FROM dead_letters WHERE job_id = ?6), json_object(
    'before', json_object('values', 'kept', 'edits', (
        SELECT count(*) FROM edits WHERE job_id = ?6 AND coalesce(before, after) IS NOT NULL)),
    'after', json_object('values', 'erased', 'edits', 0));

-- name: letters_there
SELECT id FROM dead_letters WHERE id IN (SELECT value FROM json_each(?));

-- name: judged_letters
SELECT letter.id, state, campaign_id, diagnosis, evidence, is_safe, assignee, error_class, stage, code, reason, moved
FROM letters letter JOIN lanes ON lanes.id = lane_id WHERE letter.id IN (SELECT value FROM json_each(?)) ORDER BY letter.id;

-- name: next_move
UPDATE letter_moves SET last = last + 1;

-- name: triage_letters
-- Evidence that was given for another diagnosis proves nothing for this one.
UPDATE dead_letters SET state = 'triaged', diagnosis = ?3, evidence = NULL, is_safe = 0, moved = (SELECT last FROM letter_moves)
WHERE id IN (SELECT value FROM json_each(?1)) AND state = ?2 AND campaign_id IS NULL;

-- name: remediate_letters
UPDATE dead_letters SET state = 'ready', evidence = ?3, is_safe = 1, moved = (SELECT last FROM letter_moves)
WHERE id IN (SELECT value FROM json_each(?1)) AND state = ?2;

-- name: discard_letters
UPDATE dead_letters SET state = 'discarded', campaign_id = NULL, moved = (SELECT last FROM letter_moves)
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
SELECT letter.state, letter.job_id, jobs.status, jobs.erased_at, lanes.pipeline, lanes.stage,
    CASE WHEN ?2 = 'input' AND input IS NOT NULL THEN input
        WHEN (?2 = 'payload' OR input_from = 0) AND payload IS NOT NULL THEN payload
        ELSE (SELECT value FROM job_values
            WHERE job_values.job_id = jobs.id AND job_values.dispatch = CASE ?2 WHEN 'payload' THEN 0 ELSE input_from END) END,
    (SELECT max(edits.id) FROM edits WHERE edits.letter_id = letter.id AND part = ?2),
    (SELECT after FROM edits WHERE edits.letter_id = letter.id AND part = ?2 ORDER BY edits.id DESC LIMIT 1),
    EXISTS (SELECT 1 FROM imports WHERE imports.job_id = jobs.id)
        AND NOT EXISTS (SELECT 1 FROM operations WHERE subject = 'job ' || jobs.id AND verb = 'erase')
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id JOIN lanes ON lanes.id = letter.lane_id WHERE letter.id = ?1;

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

-- name: erase_job
UPDATE jobs SET payload = NULL, input = NULL, input_from = 0, result = NULL, result_from = NULL, progress = NULL, erased_at = ?2
WHERE id = ?1 AND status IN ('complete', 'failed', 'cancelled') AND erased_at IS NULL;

-- name: erase_values
DELETE FROM job_values WHERE job_id = ?;

-- name: erase_edits
UPDATE edits SET before = NULL, after = NULL WHERE job_id = ?;

-- name: job_to_erase
SELECT status, erased_at FROM jobs WHERE id = ?;

-- name: installation
SELECT id FROM installation;

-- name: exported_letters
SELECT letter.id, letter.job_id, letter.round, letter.state, letter.code, letter.category, letter.is_retryable, letter.error_class,
    letter.fingerprint, letter.reason, letter.message, letter.context, letter.stack, letter.diagnosis, letter.evidence, letter.assignee,
    letter.verdict, letter.is_escalated, letter.first_failure_at, letter.last_failure_at,
    lanes.pipeline, lanes.stage, lanes.position, jobs.status, jobs.priority, jobs.key, jobs.owner, jobs.created_at, jobs.erased_at,
    letter.campaign_id
FROM letters letter JOIN jobs ON jobs.id = letter.job_id JOIN lanes ON lanes.id = letter.lane_id
WHERE letter.id IN (SELECT value FROM json_each(?)) ORDER BY letter.id;

-- name: acts_with_letters
-- Acts on many letters at once by which some of these (?1, between ?2 and ?3) were changed, each with the letter. Where the ids of an
-- act begin and end is looked at first: most acts are about none of a few letters.
SELECT given.value, operations.id, at, actor, verb, subject, reason, letters, json_remove(change, '$.letters')
FROM (SELECT id AS act FROM operations WHERE subject >= 'filter ' AND subject < 'filter!'
        UNION ALL SELECT id FROM operations WHERE subject >= 'group ' AND subject < 'group!')
    CROSS JOIN operations ON operations.id = act
    CROSS JOIN json_each(change, '$.letters') AS ids
    CROSS JOIN json_each(?1) AS given ON given.value BETWEEN json_extract(ids.value, '$[0]') AND json_extract(ids.value, '$[1]')
WHERE json_extract(change, '$.letters[0][0]') <= ?3 AND json_extract(change, '$.letters[#-1][1]') >= ?2;

-- name: exported_values
-- The payload of a job, and the input of its present stage; that one is NULL while it is the payload.
SELECT coalesce(payload, (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = 0)),
    CASE WHEN input IS NOT NULL OR input_from = 0 THEN input
        ELSE (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = input_from) END
FROM jobs WHERE id = ?;

-- name: exported_edits
-- Those a replay may start with: of the letter itself, and of the payload in earlier rounds, which holds for every later restart.
SELECT part, before, after, at, actor FROM edits
WHERE job_id = ?1 AND (letter_id = ?2 OR (part = 'payload' AND letter_id < ?2)) AND after IS NOT NULL ORDER BY id;

-- name: pipelines_of_letters
SELECT DISTINCT pipeline FROM dead_letters letter JOIN lanes ON lanes.id = lane_id
WHERE letter.id IN (SELECT value FROM json_each(?)) ORDER BY pipeline;

-- name: known_imports
SELECT letter FROM imports WHERE origin = ? AND letter IN (SELECT value FROM json_each(?));

-- name: import_lane
-- One that is there keeps its place among its neighbours.
INSERT INTO lanes (pipeline, stage, position, paused_at)
VALUES (?1, ?2, ?3, (SELECT max(paused_at) FROM lanes WHERE pipeline = ?1)) ON CONFLICT DO NOTHING;

-- name: import_job
-- Made queued and failed right after it, in one transaction, because only moving a job counts it.
-- Its dispatch is one beyond that of its input, so that there is room for the value of an edit.
INSERT INTO jobs (pipeline, lane_id, status, priority, run_at, key, owner, payload, input, input_from, dispatch, created_at, erased_at)
SELECT ?1, id, 'queued', ?3, ?4, ?5, ?6, ?7, ?8, ?9, 2, ?10, ?11 FROM lanes WHERE pipeline = ?1 AND stage = ?2;

-- name: import_mark
INSERT INTO imports (origin, letter, job_id, at, actor, job, attempts) VALUES (?1, ?2, last_insert_rowid(), ?3, ?4, ?5, ?6);

-- name: import_value
INSERT INTO job_values (job_id, dispatch, value) SELECT job_id, ?3, ?4 FROM imports WHERE origin = ?1 AND letter = ?2;

-- name: import_failure
UPDATE jobs SET status = 'failed', error_code = ?3, error_message = ?4, finished_at = ?5
WHERE id = (SELECT job_id FROM imports WHERE origin = ?1 AND letter = ?2);

-- name: import_group
INSERT INTO letter_groups (fingerprint, lane_id, code, category, error_class, first_at, last_at)
SELECT ?3, id, ?4, ?5, ?6, ?7, ?8 FROM lanes WHERE pipeline = ?1 AND stage = ?2
ON CONFLICT (fingerprint, lane_id) DO UPDATE SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at);

-- name: import_letter
INSERT INTO dead_letters (job_id, lane_id, group_id, round, state, owner, key, first_failure_at, last_failure_at)
SELECT jobs.id, jobs.lane_id, letter_groups.id, 1, 'open', owner, key, ?4, ?5
FROM imports JOIN jobs ON jobs.id = job_id JOIN letter_groups ON letter_groups.lane_id = jobs.lane_id AND fingerprint = ?3
WHERE origin = ?1 AND letter = ?2;

-- name: import_facts
INSERT INTO letter_facts (letter_id, code, category, is_retryable, error_class, reason, message, context, stack)
VALUES (last_insert_rowid(), ?, ?, ?, ?, ?, ?, ?, ?);

-- name: import_edit
INSERT INTO edits (letter_id, job_id, part, before, after, at, actor)
SELECT dead_letters.id, imports.job_id, ?3, ?4, ?5, ?6, ?7
FROM imports JOIN dead_letters ON dead_letters.job_id = imports.job_id WHERE origin = ?1 AND letter = ?2;
