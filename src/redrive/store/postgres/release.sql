-- SPDX-License-Identifier: Apache-2.0
-- Releasing failed jobs into a new round: the candidates, and the changes that queue them.

-- part: candidates
-- As one text, for the same reason as `claimed`: thousands of rows fetched one by one would each wait for the interpreter.
SELECT convert_to(coalesce(json_agg(json_build_array({candidate_names})), '[]')::text, 'UTF8') AS candidates, (SELECT coalesce(max(id), 0) FROM edits) AS last_edit
FROM ({candidate}, text_of({candidate_value}) AS value;

-- name: log_retry
-- Before it is released, in the same transaction; only while the letter is in the state whose rules were looked at.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
SELECT $1, $2, $3, $4, $5, $6, 1, json_build_object('before', json_build_object('state', state, 'round', jobs.round),
    'after', jsonb_build_object('state', 'replaying', 'round', jobs.round + 1) || $7::jsonb)::text
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id WHERE letter.id = $8 AND state = $9;
