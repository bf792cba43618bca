-- SPDX-License-Identifier: Apache-2.0
-- Reading dead letters. Lists are turned into arrays first, so that an index can be searched for their members.

-- part: filter_states
ANY (ARRAY(SELECT json_array_elements_text($6::json)));

-- part: filter_ids
ANY (ARRAY(SELECT json_array_elements_text($11::json)::bigint));

-- part: letter_filter
-- And $6 states as JSON, $9 owner, $10 key, $11 ids as JSON, $12 whether escalated, $13 assignee, $14 run.
letter.state = {filter_states} AND ($9::text IS NULL OR letter.owner = $9::text) AND ($10::text IS NULL OR letter.key = $10::text)
    AND ($11::text IS NULL OR letter.id = {filter_ids}) AND ($12::integer IS NULL OR letter.is_escalated = $12::integer)
    AND ($13::text IS NULL OR letter.assignee = $13::text) AND ($14::bigint IS NULL OR letter.run_id = $14::bigint)
    AND letter.group_id = ANY (ARRAY(
        SELECT letter_groups.id FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id WHERE {group_filter}));

-- part: time_filter
-- And $7 since, $8 until.
letter.last_failure_at >= coalesce($7::double precision, '-Infinity') AND letter.last_failure_at < coalesce($8::double precision, 'Infinity');

-- name: freeze_by_group
-- The cut-off and the counts are of one moment.
SELECT cutoff, moves, counted FROM freeze_letters($1::text, $2::text, $3::text, $4::text, $5::text,
    ARRAY(SELECT json_array_elements_text($6::json)));

-- name: count_by_id
{counted} WHERE letter.id = {filter_ids} AND {window} {by_pipeline};

-- name: ids_by_id
SELECT letter.id FROM dead_letters letter WHERE letter.id = {filter_ids} AND {window} ORDER BY letter.id;

-- name: taken_by_group
-- Letters that wait in a replay, by pipeline, state and replay.
SELECT lanes.pipeline, standing AS state, replay_id, sum(letters)::bigint AS letters
FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id JOIN letter_tallies ON group_id = letter_groups.id
WHERE {group_filter} AND standing = {filter_states} AND replay_id <> 0 AND standing IN ('open', 'triaged', 'ready')
GROUP BY 1, 2, 3 HAVING sum(letters) > 0;

-- name: letter_pairs
-- The groups that a filter matches, with how many of their letters are in each state. A page costs about the same whatever the filter:
-- first the few groups it matches are found, then the newest letters of each are read from an index. It ends before a position, which
-- is the instant of the last failure, and the id.
SELECT letters_by_group.group_id AS "group", state, sum(letters)::bigint AS letters
FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id JOIN letters_by_group ON group_id = letter_groups.id
WHERE {group_filter} AND state = {filter_states}
GROUP BY letters_by_group.group_id, state HAVING sum(letters) > 0;

-- part: newest_first
ORDER BY last_failure_at DESC, id DESC;

-- name: letters_by_time
SELECT last_failure_at, id FROM dead_letters
WHERE (last_failure_at, id) < ($1::double precision, $2::bigint) AND last_failure_at >= $3::double precision
{newest_first} LIMIT $4::bigint;

-- part: pairs
-- $1: groups and states, as JSON
WITH pairs (of_group, of_state) AS MATERIALIZED (
    SELECT (given ->> 0)::bigint, given ->> 1 FROM json_array_elements($1::json) AS list (given))

-- part: of_pair
FROM dead_letters WHERE group_id = of_group AND state = of_state
    AND (last_failure_at, id) < ($2::double precision, $3::bigint) AND last_failure_at >= $4::double precision {newest_first};

-- name: letters_by_groups
-- Only the groups with the newest letters can have one among the newest of all, so the others are left after one look.
{pairs},
heads AS MATERIALIZED (
    SELECT of_group, of_state, head_at, head FROM pairs
        CROSS JOIN LATERAL (SELECT last_failure_at AS head_at, id AS head {of_pair} LIMIT 1) AS first
    ORDER BY head_at DESC, head DESC LIMIT $5::bigint)
SELECT last_failure_at, id FROM heads CROSS JOIN LATERAL (SELECT last_failure_at, id {of_pair} LIMIT $5::bigint) AS newest
{newest_first} LIMIT $5::bigint;

-- part: floor
AND (last_failure_at, id) < ($2::double precision, $3::bigint) AND last_failure_at >= $4::double precision
{newest_first} LIMIT 1 OFFSET $5::bigint;

-- part: page
-- The letters of a filter before the position ($15, $16) down to ($17, $18); positions stand for $7 and $8, whose types must be known
-- all the same.
{letter_filter} AND (letter.last_failure_at, letter.id) < ($15::double precision, $16::bigint)
    AND (letter.last_failure_at, letter.id) >= ($17::double precision, $18::bigint)
    AND (true OR $7::double precision < $8::double precision)
ORDER BY letter.last_failure_at DESC, letter.id DESC LIMIT $19::bigint;

-- name: letters_by_id
SELECT letter.last_failure_at, letter.id FROM dead_letters letter WHERE letter.id = {filter_ids} AND {page};

-- part: given_ids
-- $1: ids, as JSON
ANY (ARRAY(SELECT json_array_elements_text($1::json)::bigint));

-- name: letter_lines
SELECT {letter_line}
FROM letters letter JOIN lanes ON lanes.id = lane_id WHERE letter.id = {given_ids};

-- part: receipts
(SELECT coalesce(json_object_agg(sink, receipt ORDER BY sink), '{}')::text FROM receipts WHERE letter_id = letter.id);

-- name: freed_later
SELECT id FROM dead_letters WHERE id = {given_ids} AND freed > $2::bigint ORDER BY id;

-- name: letter_groups
-- Settling leaves the row of a group that is known as it is; two looks into the index for each state find what came before and after.
SELECT letter_groups.id, fingerprint, pipeline, stage, code, category, exception, least(first_at, oldest) AS first_at,
    greatest(last_at, newest) AS last_at
FROM letter_groups JOIN lanes ON lanes.id = lane_id CROSS JOIN LATERAL (
    SELECT min((SELECT min(last_failure_at) FROM dead_letters WHERE group_id = letter_groups.id AND state = of_state)) AS oldest,
        max((SELECT max(last_failure_at) FROM dead_letters WHERE group_id = letter_groups.id AND state = of_state)) AS newest
    FROM unnest('{open,triaged,ready,replaying,resolved,returned,discarded}'::text[]) AS of_state) AS span
WHERE letter_groups.id = {given_ids};

-- name: taken_letters
SELECT group_id, sum(letters)::bigint AS letters FROM letters_by_group
WHERE is_taken = 1 AND letters > 0 AND group_id = {given_ids} AND ($2::text IS NULL OR state = $2::text) GROUP BY group_id;

-- name: taken_in_span
SELECT group_id, count(*) AS letters FROM dead_letters
WHERE replay_id IS NOT NULL AND verdict IS NULL AND state <> 'replaying' AND group_id = {given_ids}
    AND ($2::text IS NULL OR state = $2::text) AND last_failure_at >= $3::double precision AND last_failure_at < $4::double precision
GROUP BY group_id;

-- name: count_in_span
-- The letters of each group and state whose last failure lies in a span of time, counted in the index alone.
{pairs}
SELECT of_group AS "group", of_state AS state, (SELECT count(*) FROM dead_letters WHERE group_id = of_group AND state = of_state
    AND last_failure_at >= $2::double precision AND last_failure_at < $3::double precision) AS letters
FROM pairs;

-- name: count_named_by_group
-- With the newest of each.
SELECT group_id, state, count(*) AS letters, count(*) FILTER (WHERE replay_id IS NOT NULL AND state IN ('open', 'triaged', 'ready')) AS taken,
    max(last_failure_at) AS last_failure_at, (array_agg(id ORDER BY last_failure_at DESC, id DESC))[1] AS id
FROM dead_letters WHERE id = {given_ids} GROUP BY group_id, state;

-- name: letter_heads
-- The newest letter of each group and state whose last failure lies in a span of time, read off the index alone.
{pairs}
SELECT of_group, last_failure_at, id FROM pairs LEFT JOIN LATERAL (
    SELECT last_failure_at, id FROM dead_letters WHERE group_id = of_group AND state = of_state
        AND last_failure_at >= $2::double precision AND last_failure_at < $3::double precision {newest_first} LIMIT 1) AS newest ON true;

-- name: group_trend
SELECT group_id, hour, sum(letters)::bigint AS letters FROM letter_trend WHERE group_id = {given_ids} AND hour > $2::bigint
GROUP BY group_id, hour;
