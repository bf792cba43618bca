-- SPDX-License-Identifier: Apache-2.0
-- Releasing failed jobs into a new round: the candidates, and the changes that queue them.

-- part: candidates
-- As one text, for the same reason as `claimed`: thousands of rows fetched one by one would each wait for the interpreter.
-- As bytes, because a value need not be text.
SELECT CAST(json_group_array(json_array({candidate_names})) AS BLOB) AS candidates, (SELECT coalesce(max(id), 0) FROM edits) AS last_edit
FROM ({candidate}, CAST({candidate_value} AS TEXT) AS value;

-- name: log_retry
-- Before it is released, in the same transaction; only while the letter is in the state whose rules were looked at.
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, 1, json_object('before', json_object('state', state, 'round', jobs.round),
    'after', json_patch(json_object('state', 'replaying', 'round', jobs.round + 1), ?7))
FROM dead_letters letter JOIN jobs ON jobs.id = letter.job_id WHERE letter.id = ?8 AND state = ?9;
