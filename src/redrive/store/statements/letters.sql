-- SPDX-License-Identifier: Apache-2.0
-- Reading dead letters. The filter is defined once, in the parts below; whatever lists, counts, freezes or marks letters takes its
-- parameters as $1 to $14 (`LetterTerms`), or $1 to $6 if the counters of the groups are enough (`GroupTerms`).

-- part: group_filter
-- $1 pipeline, $2 stage, $3 code, $4 category, $5 fingerprint; NULL matches all.
($1::text IS NULL OR lanes.pipeline = $1::text) AND ($2::text IS NULL OR lanes.stage = $2::text)
    AND ($3::text IS NULL OR letter_groups.code = $3::text) AND ($4::text IS NULL OR letter_groups.category = $4::text)
    AND ($5::text IS NULL OR letter_groups.fingerprint = $5::text);

-- part: in_ids
-- $1: ids, as JSON; as an array, so that PostgreSQL searches an index for its members.
= ANY (ARRAY(SELECT json_array_elements_text($1::json)::bigint));

-- part: in_filter_states
= ANY (ARRAY(SELECT json_array_elements_text($6::json)));

-- part: in_filter_ids
= ANY (ARRAY(SELECT json_array_elements_text($11::json)::bigint));

-- part: letter_filter
-- And $6 states as JSON, $9 owner, $10 key, $11 ids as JSON, $12 whether escalated, $13 assignee, $14 run.
letter.state {in_filter_states} AND ($9::text IS NULL OR letter.owner = $9::text) AND ($10::text IS NULL OR letter.key = $10::text)
    AND ($11::text IS NULL OR letter.id {in_filter_ids}) AND ($12::integer IS NULL OR letter.is_escalated = $12::integer)
    AND ($13::text IS NULL OR letter.assignee = $13::text) AND ($14::bigint IS NULL OR letter.run_id = $14::bigint)
    AND letter.group_id = ANY (ARRAY({filtered_groups}));

-- part: time_filter
-- And $7 since, $8 until.
letter.last_failure_at >= coalesce($7::double precision, -1e300) AND letter.last_failure_at < coalesce($8::double precision, 1e300);

-- part: filtered_groups
SELECT letter_groups.id FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id WHERE {group_filter};

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

-- name: count_by_id
{counted} /* NOT INDEXED */ WHERE letter.id {in_filter_ids} AND {window} {by_pipeline};

-- name: ids_by_id
SELECT letter.id FROM dead_letters letter /* NOT INDEXED */ WHERE letter.id {in_filter_ids} AND {window} ORDER BY letter.id;

-- name: taken_by_group
-- Letters that wait in a replay, by pipeline, state and replay.
SELECT lanes.pipeline, standing AS state, replay_id, sum(letters)::bigint AS letters
FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id JOIN letter_tallies ON group_id = letter_groups.id
WHERE {group_filter} AND standing {in_filter_states} AND replay_id <> 0 AND standing IN ('open', 'triaged', 'ready')
GROUP BY 1, 2, 3 HAVING sum(letters) > 0;

-- name: taken_by_letter
SELECT lanes.pipeline, letter.state, letter.replay_id, count(*) AS letters
FROM dead_letters letter /* INDEXED BY dead_letters_taken */ JOIN lanes ON lanes.id = letter.lane_id
WHERE letter.replay_id IS NOT NULL AND letter.outcome IS NULL AND letter.state <> 'replaying' AND {window}
GROUP BY 1, 2, 3;

-- name: letter_pairs
-- The groups that a filter matches, with how many of their letters are in each state. A page costs about the same whatever the filter:
-- first the few groups it matches are found, then the newest letters of each are read from an index. It ends before a position, which
-- is the instant of the last failure, and the id.
SELECT letters_by_group.group_id AS "group", state, sum(letters)::bigint AS letters
FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id JOIN letters_by_group ON group_id = letter_groups.id
WHERE {group_filter} AND state {in_filter_states}
GROUP BY letters_by_group.group_id, state HAVING sum(letters) > 0;

-- part: newest_first
ORDER BY last_failure_at DESC, id DESC;

-- name: letters_by_time
SELECT last_failure_at, id FROM dead_letters
WHERE (last_failure_at, id) < ($1::double precision, $2::bigint) AND last_failure_at >= $3::double precision
{newest_first} LIMIT $4::bigint;

-- part: of_pair
FROM dead_letters WHERE group_id = of_group AND state = of_state
    AND (last_failure_at, id) < ($2::double precision, $3::bigint) AND last_failure_at >= $4::double precision {newest_first};

-- part: of_pair_in_span
FROM dead_letters /* INDEXED BY dead_letters_group */ WHERE group_id = of_group AND state = of_state
    AND last_failure_at >= $2::double precision AND last_failure_at < $3::double precision;

-- part: floor
AND (last_failure_at, id) < ($2::double precision, $3::bigint) AND last_failure_at >= $4::double precision
{newest_first} LIMIT 1 OFFSET $5::bigint;

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

-- part: page
-- The letters of a filter before the position ($15, $16) down to ($17, $18); positions stand for $7 and $8, whose types must still
-- be known.
{letter_filter} AND (letter.last_failure_at, letter.id) < ($15::double precision, $16::bigint)
    AND (letter.last_failure_at, letter.id) >= ($17::double precision, $18::bigint)
    AND (true OR $7::double precision < $8::double precision)
ORDER BY letter.last_failure_at DESC, letter.id DESC LIMIT $19::bigint;

-- name: letters_by_id
SELECT letter.last_failure_at, letter.id FROM dead_letters letter /* NOT INDEXED */ WHERE letter.id {in_filter_ids} AND {page};

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

-- name: letter_lines
SELECT {letter_line} FROM letters letter JOIN lanes ON lanes.id = lane_id WHERE letter.id {in_ids};

-- name: letter_messages
SELECT letter_id AS id, message FROM letter_facts WHERE letter_id {in_ids};

-- part: letter_columns
{letter_line}, letter.outcome, letter.follows,
    (SELECT next.id FROM dead_letters next WHERE next.job_id = letter.job_id AND next.follows = letter.id ORDER BY next.id LIMIT 1) AS followed_by,
    letter.evidence, letter.is_safe, letter.closed_at, letter.is_retryable, letter.code AS error_class, letter.exception, letter.reason,
    letter.context AS sanitized_context, letter.stack AS last_stack;

-- name: letter
SELECT {letter_columns} FROM letters letter JOIN lanes ON lanes.id = letter.lane_id WHERE letter.id = $1::bigint;

-- name: letters_of_job
SELECT {letter_columns} FROM letters letter JOIN lanes ON lanes.id = letter.lane_id WHERE letter.job_id = $1::bigint ORDER BY letter.id;

-- name: nearest_letters
SELECT id FROM dead_letters WHERE id BETWEEN $1::bigint AND $2::bigint ORDER BY id LIMIT 5;

-- name: freed_later
SELECT id FROM dead_letters WHERE id {in_ids} AND freed > $2::bigint ORDER BY id;

-- name: edits_of_letter
SELECT id, part, at, actor FROM edits WHERE letter_id = $1::bigint ORDER BY id;

-- name: taken_letters
SELECT group_id, sum(letters)::bigint AS letters FROM letters_by_group
WHERE is_taken = 1 AND letters > 0 AND group_id {in_ids} AND ($2::text IS NULL OR state = $2::text) GROUP BY group_id;

-- name: taken_in_span
SELECT group_id, count(*) AS letters FROM dead_letters /* INDEXED BY dead_letters_taken */
WHERE replay_id IS NOT NULL AND outcome IS NULL AND state <> 'replaying' AND group_id {in_ids}
    AND ($2::text IS NULL OR state = $2::text) AND last_failure_at >= $3::double precision AND last_failure_at < $4::double precision
GROUP BY group_id;

-- name: count_in_span
-- The letters of each group and state whose last failure lies in a span of time, counted in the index alone.
{pairs}
SELECT of_group AS "group", of_state AS state, (SELECT count(*) {of_pair_in_span}) AS letters FROM pairs;

-- name: group_trend
SELECT group_id, hour, sum(letters)::bigint AS letters FROM letter_trend WHERE group_id {in_ids} AND hour > $2::bigint
GROUP BY group_id, hour;

-- name: fingerprints
-- Those that begin like this; from one string to another, so that the index is used.
SELECT DISTINCT fingerprint FROM letter_groups
WHERE fingerprint >= $1::text AND fingerprint < $2::text ORDER BY fingerprint LIMIT $3::bigint;
