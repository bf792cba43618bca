-- SPDX-License-Identifier: Apache-2.0
-- Releasing failed jobs into a new round: the candidates, and the changes that queue them.

-- part: candidates
-- As one text, for the same reason as `claimed`: thousands of rows fetched one by one would each wait for the interpreter.
SELECT coalesce(json_agg(json_build_array({candidate_names})), '[]')::text AS candidates, (SELECT coalesce(max(id), 0) FROM edits) AS last_edit
FROM ({candidate}, text_of({candidate_value}) AS value;

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
