-- SPDX-License-Identifier: Apache-2.0
-- Releasing failed jobs into a new round: the candidates, and the changes that queue them.

-- part: candidates
-- As one text, for the same reason as `claimed`: thousands of rows fetched one by one would each wait for the interpreter. Large values
-- and edits are only named, and read one by one. A payload that was edited once stays edited for every later restart. $2: from_start
SELECT coalesce(json_agg(json_build_array(letter, job_id, state, lane_id, pipeline, stage, status, key, dispatch, erased_at, duplicate, edit, beside,
    value)), '[]')::text AS candidates, (SELECT coalesce(max(id), 0) FROM edits) AS last_edit
FROM (SELECT letter.id AS letter, letter.job_id, letter.state, jobs.lane_id, lanes.pipeline, lanes.stage, jobs.status, jobs.key,
        jobs.dispatch, jobs.erased_at,
        CASE WHEN jobs.key IS NOT NULL THEN (SELECT duplicate.id FROM jobs duplicate WHERE duplicate.pipeline = jobs.pipeline AND duplicate.key = jobs.key
            AND duplicate.status IN ('queued', 'processing', 'complete')) END AS duplicate,
        CASE WHEN $2::bigint <> 0 THEN (SELECT max(edits.id) FROM edits WHERE edits.job_id = jobs.id AND part = 'payload')
            ELSE (SELECT max(edits.id) FROM edits WHERE edits.letter_id = letter.id
                AND (part = 'input' OR (jobs.input IS NULL AND jobs.input_from = 0))) END AS edit,
        CASE WHEN $2::bigint = 0 AND jobs.input IS NULL AND jobs.input_from > 0 THEN jobs.input_from
            WHEN jobs.payload IS NULL AND ($2::bigint <> 0 OR jobs.input IS NULL) THEN 0 END AS beside,
        text_of(CASE WHEN $2::bigint = 0 AND jobs.input IS NOT NULL THEN jobs.input WHEN $2::bigint <> 0 OR jobs.input_from = 0 THEN jobs.payload END)
            AS value;

-- name: replay_batch
-- The next letters of a replay.
{candidates}
    FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id JOIN lanes ON lanes.id = jobs.lane_id
    WHERE letter.replay_id = $1 AND letter.verdict IS NULL AND letter.state <> 'replaying' ORDER BY letter.id LIMIT $3) AS found;

-- name: replay_candidates
-- Letters by id, whatever replay they belong to.
{candidates}
    FROM json_array_elements_text($1::json) AS given JOIN dead_letters letter ON letter.id = given::bigint JOIN jobs ON jobs.id = letter.job_id
        JOIN lanes ON lanes.id = jobs.lane_id ORDER BY letter.id) AS found;

-- name: count_taken
-- Runs before `take_letters`, while the letters still have their old state; the change is rolled back unless all of them are taken.
INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
SELECT coalesce($2::bigint, 0), group_id, coalesce(column1, state), sum(column2)
FROM dead_letters, (VALUES (NULL, -1), ('replaying', 1)) AS change WHERE id IN (SELECT json_array_elements_text($1::json)::bigint)
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
ON CONFLICT (replay_id, group_id, standing, part) DO UPDATE SET letters = letter_tallies.letters + excluded.letters;

-- name: log_retry
-- Before it is released, in the same transaction; only while the letter is in the state whose rules were looked at.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
SELECT $1, $2, $3, $4, $5, $6, 1, json_build_object('before', json_build_object('state', state, 'round', jobs.round),
    'after', jsonb_build_object('state', 'replaying', 'round', jobs.round + 1) || $7::jsonb)::text
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id WHERE letter.id = $8 AND state = $9;
