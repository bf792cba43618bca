-- SPDX-License-Identifier: Apache-2.0
-- Reading dead letters.

-- name: freeze_by_group
-- The cut-off and the counts are of one moment.
SELECT cutoff, moves, counted FROM freeze_letters($1::text, $2::text, $3::text, $4::text, $5::text,
    ARRAY(SELECT json_array_elements_text($6::json)));

-- part: pairs
-- $1: groups and states, as JSON
WITH pairs (of_group, of_state) AS MATERIALIZED (
    SELECT (given ->> 0)::bigint, given ->> 1 FROM json_array_elements($1::json) AS list (given))

-- name: letters_by_groups
-- Only the groups with the newest letters can have one among the newest of all, so the others are left after one look.
{pairs},
heads AS MATERIALIZED (
    SELECT of_group, of_state, head_at, head FROM pairs
        CROSS JOIN LATERAL (SELECT last_failure_at AS head_at, id AS head {of_pair} LIMIT 1) AS first
    ORDER BY head_at DESC, head DESC LIMIT $5::bigint)
SELECT last_failure_at, id FROM heads CROSS JOIN LATERAL (SELECT last_failure_at, id {of_pair} LIMIT $5::bigint) AS newest
{newest_first} LIMIT $5::bigint;

-- part: receipts
(SELECT coalesce(json_object_agg(sink, receipt ORDER BY sink), '{}')::text FROM receipts WHERE letter_id = letter.id);

-- name: letter_groups
-- Settling leaves the row of a group that is known as it is; two looks into the index for each state find what came before and after.
SELECT letter_groups.id, fingerprint, pipeline, stage, code, category, exception, least(first_at, oldest) AS first_at,
    greatest(last_at, newest) AS last_at
FROM letter_groups JOIN lanes ON lanes.id = lane_id CROSS JOIN LATERAL (
    SELECT min((SELECT min(last_failure_at) FROM dead_letters WHERE group_id = letter_groups.id AND state = of_state)) AS oldest,
        max((SELECT max(last_failure_at) FROM dead_letters WHERE group_id = letter_groups.id AND state = of_state)) AS newest
    FROM unnest('{open,triaged,ready,replaying,resolved,returned,discarded}'::text[]) AS of_state) AS span
WHERE letter_groups.id {in_ids};

-- name: count_named_by_group
-- With the newest of each.
SELECT group_id, state, count(*) AS letters, count(*) FILTER (WHERE replay_id IS NOT NULL AND state IN ('open', 'triaged', 'ready')) AS taken,
    max(last_failure_at) AS last_failure_at, (array_agg(id ORDER BY last_failure_at DESC, id DESC))[1] AS id
FROM dead_letters WHERE id {in_ids} GROUP BY group_id, state;

-- name: letter_heads
-- The newest letter of each group and state whose last failure lies in a span of time, read off the index alone.
{pairs}
SELECT of_group, last_failure_at, id FROM pairs LEFT JOIN LATERAL (
    SELECT last_failure_at, id {of_pair_in_span} {newest_first} LIMIT 1) AS newest ON true;
