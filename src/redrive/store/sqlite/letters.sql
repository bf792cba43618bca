-- SPDX-License-Identifier: Apache-2.0
-- Reading dead letters.

-- name: freeze_by_group
-- The cut-off and the counts are of one moment, because it is one statement.
SELECT (SELECT coalesce(max(id), 0) FROM dead_letters) AS cutoff, (SELECT last FROM letter_moves) AS moves, (
    SELECT json_group_array(json_array(pipeline, state, letters)) FROM (
        SELECT lanes.pipeline, state, sum(letters) AS letters
        FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id JOIN letters_by_group ON group_id = letter_groups.id
        WHERE {group_filter} AND state {in_filter_states}
        GROUP BY 1, 2 HAVING sum(letters) > 0)) AS counted;

-- part: pairs
-- ?1: groups and states, as JSON
WITH pairs (of_group, of_state) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?1))

-- name: letters_by_groups
-- Only the groups with the newest letters can have one among the newest of all, so the others are left after one look. Everything is
-- read off the index alone: letters themselves lie scattered over the whole file.
{pairs},
heads (of_group, of_state, head_at, head) AS MATERIALIZED (
    SELECT of_group, of_state,
        (SELECT last_failure_at {of_pair} LIMIT 1),
        (SELECT id {of_pair} LIMIT 1)
    FROM pairs),
newest (of_group, of_state, end_at, end_id) AS MATERIALIZED (
    SELECT of_group, of_state,
        (SELECT last_failure_at {of_pair} LIMIT 1 OFFSET ?5 - 1),
        (SELECT id {of_pair} LIMIT 1 OFFSET ?5 - 1)
    FROM (SELECT of_group, of_state FROM heads WHERE head IS NOT NULL ORDER BY head_at DESC, head DESC LIMIT ?5))
SELECT last_failure_at, id FROM newest CROSS JOIN dead_letters
WHERE group_id = of_group AND state = of_state AND (last_failure_at, id) < (?2, ?3)
    AND (last_failure_at, id) >= (coalesce(end_at, ?4), coalesce(end_id, 0))
ORDER BY last_failure_at DESC, id DESC LIMIT ?5;

-- part: receipts
(SELECT json_group_object(sink, receipt) FROM receipts WHERE letter_id = letter.id);

-- name: letter_groups
SELECT letter_groups.id, fingerprint, pipeline, stage, code, category, exception, first_at, last_at
FROM letter_groups JOIN lanes ON lanes.id = lane_id WHERE letter_groups.id {in_ids};

-- name: count_named_by_group
-- With the newest of each: beside max(), the other columns are of the row it was found in.
SELECT group_id, state, count(*) AS letters, sum(replay_id IS NOT NULL AND state IN ('open', 'triaged', 'ready')) AS taken, max(last_failure_at) AS last_failure_at, id
FROM dead_letters WHERE id {in_ids} GROUP BY group_id, state;

-- name: letter_heads
-- The newest letter of each group and state whose last failure lies in a span of time, read off the index alone.
{pairs}
SELECT of_group,
    (SELECT last_failure_at {of_pair_in_span} {newest_first} LIMIT 1) AS last_failure_at,
    (SELECT id {of_pair_in_span} {newest_first} LIMIT 1) AS id
FROM pairs;
