-- SPDX-License-Identifier: Apache-2.0
-- Releasing failed jobs into a new round: the candidates, and the changes that queue them.

-- name: edited_value
SELECT after FROM edits WHERE id = $1;

-- name: count_taken
-- Runs before `take_letters`, while the letters still have their old state; the change is rolled back unless all of them are taken.
INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
SELECT coalesce($2::bigint, 0), group_id, coalesce(column1, state), sum(taken * column2)
FROM (SELECT group_id, state, count(*) AS taken FROM dead_letters WHERE id {in_ids} GROUP BY 1, 2) AS found
    CROSS JOIN (VALUES (NULL, -1), ('replaying', 1)) AS change
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 {add_letters};

-- name: take_letters
-- A letter that was edited since it was read is not taken: it would start with the old value.
UPDATE dead_letters SET state = 'replaying', counted = counted + 1
WHERE id IN (SELECT json_array_elements_text($1::json)::bigint) AND replay_id IS NOT DISTINCT FROM $2::bigint AND state IN ('open', 'triaged', 'ready')
    AND ($3::bigint >= (SELECT coalesce(max(id), 0) FROM edits)
        OR NOT EXISTS (SELECT 1 FROM edits WHERE edits.letter_id = dead_letters.id AND edits.id > $3));

-- name: replay_jobs
UPDATE jobs SET status = 'queued', waiting = 'replay', run_at = $2::double precision, lane_id = coalesce($3::bigint, lane_id), round = round + 1, lane_key = NULL, attempt = 1,
    restarts = restarts + ($3::bigint IS NOT NULL)::integer, input = CASE WHEN $3::bigint IS NULL THEN input END,
    input_from = CASE WHEN $3::bigint IS NULL THEN input_from ELSE 0 END, snoozes = 0, codes = NULL, suspect_count = 0, crash_count = 0,
    cancel_asked = 0, progress = NULL, error_code = NULL, error_message = NULL, finished_at = NULL,
    expires_at = CASE WHEN expires_at > $2 THEN expires_at END
WHERE id IN (SELECT json_array_elements_text($1::json)::bigint) AND status = 'failed'
    AND (erased_at IS NULL OR EXISTS (SELECT 1 FROM edits WHERE edits.job_id = jobs.id AND after IS NOT NULL));

-- name: put_input
UPDATE jobs SET input = $1, input_from = $2, erased_at = NULL WHERE id = $3 AND status = 'queued';

-- name: live_letter
SELECT id, state, replay_id FROM dead_letters WHERE job_id = $1 AND state IN ('open', 'triaged', 'ready', 'discarded');

-- part: candidate_names
letter, job_id, state, lane_id, pipeline, stage, status, key, dispatch, erased_at, duplicate, edit, beside, value;

-- part: candidate
-- Large values and edits are only named, and read one by one. A payload that was edited once stays edited for every later restart.
-- $2: from_start
SELECT letter.id AS letter, letter.job_id, letter.state, jobs.lane_id, lanes.pipeline, lanes.stage, jobs.status, jobs.key, jobs.dispatch,
    jobs.erased_at,
    CASE WHEN jobs.key IS NOT NULL THEN (SELECT duplicate.id FROM jobs duplicate WHERE duplicate.pipeline = jobs.pipeline AND duplicate.key = jobs.key
        AND duplicate.status IN ('queued', 'processing', 'complete')) END AS duplicate,
    CASE WHEN $2::bigint <> 0 THEN (SELECT max(edits.id) FROM edits WHERE edits.job_id = jobs.id AND part = 'payload')
        ELSE (SELECT max(edits.id) FROM edits WHERE edits.letter_id = letter.id
            AND (part = 'input' OR (jobs.input IS NULL AND jobs.input_from = 0))) END AS edit,
    CASE WHEN $2::bigint = 0 AND jobs.input IS NULL AND jobs.input_from > 0 THEN jobs.input_from
        WHEN jobs.payload IS NULL AND ($2::bigint <> 0 OR jobs.input IS NULL) THEN 0 END AS beside;

-- part: candidate_value
CASE WHEN $2::bigint = 0 AND jobs.input IS NOT NULL THEN jobs.input WHEN $2::bigint <> 0 OR jobs.input_from = 0 THEN jobs.payload END;

-- name: replay_batch
-- The next letters of a replay.
{candidates}
    FROM dead_letters letter /* INDEXED BY dead_letters_taken */ JOIN jobs ON jobs.id = letter.job_id JOIN lanes ON lanes.id = jobs.lane_id
    WHERE letter.replay_id = $1 AND letter.outcome IS NULL AND letter.state <> 'replaying' ORDER BY letter.id LIMIT $3) AS found;

-- name: replay_candidates
-- Letters by id, whatever replay they belong to.
{candidates}
    FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id JOIN lanes ON lanes.id = jobs.lane_id
    WHERE letter.id {in_ids} ORDER BY letter.id) AS found;
