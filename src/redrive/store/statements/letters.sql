-- SPDX-License-Identifier: Apache-2.0
-- Reading dead letters. The filter is defined once, in the parts below; whatever lists, counts, freezes or marks letters takes its
-- parameters as $1 to $14 (`LetterFilter.row`), or $1 to $6 if the counters of the groups are enough (`LetterFilter.group_row`).

-- part: group_filter
-- $1 pipeline, $2 stage, $3 code, $4 category, $5 fingerprint; NULL matches all.
($1::text IS NULL OR lanes.pipeline = $1::text) AND ($2::text IS NULL OR lanes.stage = $2::text)
    AND ($3::text IS NULL OR letter_groups.code = $3::text) AND ($4::text IS NULL OR letter_groups.category = $4::text)
    AND ($5::text IS NULL OR letter_groups.fingerprint = $5::text);

-- part: window
-- The letters of a filter with ids above $15 up to $16.
{letter_filter} AND {time_filter} AND letter.id > $15::bigint AND letter.id <= $16::bigint;

-- part: counted
SELECT lanes.pipeline, counted.state, sum(counted.letters)::bigint AS letters
FROM (SELECT letter.group_id, letter.state, count(*) AS letters FROM dead_letters letter;

-- part: by_pipeline
GROUP BY letter.group_id, letter.state) AS counted
    JOIN letter_groups ON letter_groups.id = counted.group_id JOIN lanes ON lanes.id = letter_groups.lane_id
GROUP BY 1, 2;

-- name: count_by_group
{counted} /* INDEXED BY dead_letters_group */ WHERE {window} {by_pipeline};

-- name: ids_by_group
SELECT letter.id FROM dead_letters letter /* INDEXED BY dead_letters_group */ WHERE {window} ORDER BY letter.id;

-- name: count_by_owner
{counted} /* INDEXED BY dead_letters_owner */ WHERE letter.owner = $9::text AND {window} {by_pipeline};

-- name: ids_by_owner
SELECT letter.id FROM dead_letters letter /* INDEXED BY dead_letters_owner */ WHERE letter.owner = $9::text AND {window} ORDER BY letter.id;

-- name: count_by_key
{counted} /* INDEXED BY dead_letters_key */ WHERE letter.key = $10::text AND {window} {by_pipeline};

-- name: ids_by_key
SELECT letter.id FROM dead_letters letter /* INDEXED BY dead_letters_key */ WHERE letter.key = $10::text AND {window} ORDER BY letter.id;

-- name: count_by_run
{counted} /* INDEXED BY dead_letters_run */ WHERE letter.run_id = $14::bigint AND {window} {by_pipeline};

-- name: ids_by_run
SELECT letter.id FROM dead_letters letter /* INDEXED BY dead_letters_run */ WHERE letter.run_id = $14::bigint AND {window} ORDER BY letter.id;

-- name: count_by_assignee
{counted} /* INDEXED BY dead_letters_assignee */ WHERE letter.assignee = $13::text AND {window} {by_pipeline};

-- name: ids_by_assignee
SELECT letter.id FROM dead_letters letter /* INDEXED BY dead_letters_assignee */ WHERE letter.assignee = $13::text AND {window} ORDER BY letter.id;

-- name: count_by_escalated
{counted} /* INDEXED BY dead_letters_escalated */ WHERE letter.is_escalated = 1 AND {window} {by_pipeline};

-- name: ids_by_escalated
SELECT letter.id FROM dead_letters letter /* INDEXED BY dead_letters_escalated */ WHERE letter.is_escalated = 1 AND {window} ORDER BY letter.id;

-- name: taken_by_letter
SELECT lanes.pipeline, letter.state, letter.replay_id, count(*) AS letters
FROM dead_letters letter /* INDEXED BY dead_letters_taken */ JOIN lanes ON lanes.id = letter.lane_id
WHERE letter.replay_id IS NOT NULL AND letter.verdict IS NULL AND letter.state <> 'replaying' AND {window}
GROUP BY 1, 2, 3;

-- name: owner_floor
SELECT last_failure_at, id FROM dead_letters WHERE owner = $1::text {floor};

-- name: key_floor
SELECT last_failure_at, id FROM dead_letters WHERE key = $1::text {floor};

-- name: run_floor
SELECT last_failure_at, id FROM dead_letters WHERE run_id = $1::bigint {floor};

-- name: assignee_floor
SELECT last_failure_at, id FROM dead_letters WHERE assignee = $1::text {floor};

-- name: escalated_floor
-- $1 is 1: its condition has to be a constant for the index to be used.
SELECT last_failure_at, id FROM dead_letters WHERE is_escalated = 1 AND $1::integer = 1 {floor};

-- name: letters_by_owner
SELECT letter.last_failure_at, letter.id FROM dead_letters letter /* INDEXED BY dead_letters_owner */ WHERE letter.owner = $9::text AND {page};

-- name: letters_by_key
SELECT letter.last_failure_at, letter.id FROM dead_letters letter /* INDEXED BY dead_letters_key */ WHERE letter.key = $10::text AND {page};

-- name: letters_by_run
SELECT letter.last_failure_at, letter.id FROM dead_letters letter /* INDEXED BY dead_letters_run */ WHERE letter.run_id = $14::bigint AND {page};

-- name: letters_by_assignee
SELECT letter.last_failure_at, letter.id FROM dead_letters letter /* INDEXED BY dead_letters_assignee */ WHERE letter.assignee = $13::text AND {page};

-- name: letters_by_escalated
SELECT letter.last_failure_at, letter.id FROM dead_letters letter /* INDEXED BY dead_letters_escalated */ WHERE letter.is_escalated = 1 AND {page};

-- part: letter_line
letter.id, letter.job_id AS job, lanes.pipeline, lanes.stage, letter.code, letter.category, letter.state, letter.is_escalated, letter.round,
    letter.fingerprint AS "group", letter.message, letter.owner, letter.key, letter.diagnosis, letter.assignee, letter.replay_id AS replay,
    letter.first_failure_at, letter.last_failure_at, {receipts} AS receipts;

-- part: letter_columns
{letter_line}, letter.verdict, letter.follows,
    (SELECT next.id FROM dead_letters next WHERE next.job_id = letter.job_id AND next.follows = letter.id ORDER BY next.id LIMIT 1) AS followed_by,
    letter.evidence, letter.is_safe, letter.closed_at, letter.is_retryable, letter.code AS error_class, letter.exception, letter.reason,
    letter.context AS sanitized_context, letter.stack AS last_stack;

-- name: letter
SELECT {letter_columns} FROM letters letter JOIN lanes ON lanes.id = letter.lane_id WHERE letter.id = $1::bigint;

-- name: letters_of_job
SELECT {letter_columns} FROM letters letter JOIN lanes ON lanes.id = letter.lane_id WHERE letter.job_id = $1::bigint ORDER BY letter.id;

-- name: nearest_letters
SELECT id FROM dead_letters WHERE id BETWEEN $1::bigint AND $2::bigint ORDER BY id LIMIT 5;

-- name: edits_of_letter
SELECT id, part, at, actor FROM edits WHERE letter_id = $1::bigint ORDER BY id;

-- name: fingerprints
-- Those that begin like this; from one string to another, so that the index is used.
SELECT DISTINCT fingerprint FROM letter_groups
WHERE fingerprint >= $1::text AND fingerprint < $2::text ORDER BY fingerprint LIMIT $3::bigint;
