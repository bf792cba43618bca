-- SPDX-License-Identifier: Apache-2.0
-- Reading dead letters.

-- part: letter_filter
-- And ?6 states as JSON, ?9 owner, ?10 key, ?11 ids as JSON, ?12 whether escalated, ?13 assignee, ?14 run.
letter.state IN (SELECT value FROM json_each(?6)) AND (?9 IS NULL OR letter.owner = ?9) AND (?10 IS NULL OR letter.key = ?10)
    AND (?11 IS NULL OR letter.id IN (SELECT value FROM json_each(?11))) AND (?12 IS NULL OR letter.is_escalated = ?12)
    AND (?13 IS NULL OR letter.assignee = ?13) AND (?14 IS NULL OR letter.run_id = ?14) AND letter.group_id IN (
        SELECT letter_groups.id FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id WHERE {group_filter});

-- part: time_filter
-- And ?7 since, ?8 until.
letter.last_failure_at >= coalesce(?7, -1e300) AND letter.last_failure_at < coalesce(?8, 1e300);

-- name: freeze_by_group
-- The cut-off and the counts are of one moment, because it is one statement.
SELECT (SELECT coalesce(max(id), 0) FROM dead_letters) AS cutoff, (SELECT last FROM letter_moves) AS moves, (
    SELECT json_group_array(json_array(pipeline, state, letters)) FROM (
        SELECT lanes.pipeline, state, sum(letters) AS letters
        FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id JOIN letters_by_group ON group_id = letter_groups.id
        WHERE {group_filter} AND state IN (SELECT value FROM json_each(?6))
        GROUP BY 1, 2 HAVING sum(letters) > 0)) AS counted;

-- name: count_by_id
{counted} NOT INDEXED WHERE letter.id IN (SELECT value FROM json_each(?11)) AND {window} {by_pipeline};

-- name: ids_by_id
SELECT letter.id FROM dead_letters letter NOT INDEXED
WHERE letter.id IN (SELECT value FROM json_each(?11)) AND {window} ORDER BY letter.id;

-- name: taken_by_group
-- Letters that wait in a replay, by pipeline, state and replay.
SELECT lanes.pipeline, standing AS state, replay_id, sum(letters) AS letters
FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id JOIN letter_tallies ON group_id = letter_groups.id
WHERE {group_filter} AND standing IN (SELECT value FROM json_each(?6))
    AND replay_id <> 0 AND standing IN ('open', 'triaged', 'ready')
GROUP BY 1, 2, 3 HAVING sum(letters) > 0;

-- name: letter_pairs
-- The groups that a filter matches, with how many of their letters are in each state. A page costs about the same whatever the filter:
-- first the few groups it matches are found, then the newest letters of each are read from an index. It ends before a position, which
-- is the instant of the last failure, and the id.
SELECT letters_by_group.group_id AS "group", state, sum(letters) AS letters
FROM letter_groups JOIN lanes ON lanes.id = letter_groups.lane_id JOIN letters_by_group ON group_id = letter_groups.id
WHERE {group_filter} AND state IN (SELECT value FROM json_each(?6))
GROUP BY letters_by_group.group_id, state HAVING sum(letters) > 0;

-- name: letters_by_time
SELECT last_failure_at, id FROM dead_letters
WHERE (last_failure_at, id) < (?1, ?2) AND last_failure_at >= ?3
ORDER BY last_failure_at DESC, id DESC LIMIT ?4;

-- name: letters_by_groups
-- Only the groups with the newest letters can have one among the newest of all, so the others are left after one look. Everything is
-- read off the index alone: letters themselves lie scattered over the whole file.
WITH pairs (of_group, of_state) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?1)),
heads (of_group, of_state, head_at, head) AS MATERIALIZED (
    SELECT of_group, of_state,
        (SELECT last_failure_at FROM dead_letters WHERE group_id = of_group AND state = of_state
            AND (last_failure_at, id) < (?2, ?3) AND last_failure_at >= ?4 ORDER BY last_failure_at DESC, id DESC LIMIT 1),
        (SELECT id FROM dead_letters WHERE group_id = of_group AND state = of_state
            AND (last_failure_at, id) < (?2, ?3) AND last_failure_at >= ?4 ORDER BY last_failure_at DESC, id DESC LIMIT 1)
    FROM pairs),
newest (of_group, of_state, end_at, end_id) AS MATERIALIZED (
    SELECT of_group, of_state,
        (SELECT last_failure_at FROM dead_letters WHERE group_id = of_group AND state = of_state
            AND (last_failure_at, id) < (?2, ?3) AND last_failure_at >= ?4
            ORDER BY last_failure_at DESC, id DESC LIMIT 1 OFFSET ?5 - 1),
        (SELECT id FROM dead_letters WHERE group_id = of_group AND state = of_state
            AND (last_failure_at, id) < (?2, ?3) AND last_failure_at >= ?4
            ORDER BY last_failure_at DESC, id DESC LIMIT 1 OFFSET ?5 - 1)
    FROM (SELECT of_group, of_state FROM heads WHERE head IS NOT NULL ORDER BY head_at DESC, head DESC LIMIT ?5))
SELECT last_failure_at, id FROM newest CROSS JOIN dead_letters
WHERE group_id = of_group AND state = of_state AND (last_failure_at, id) < (?2, ?3)
    AND (last_failure_at, id) >= (coalesce(end_at, ?4), coalesce(end_id, 0))
ORDER BY last_failure_at DESC, id DESC LIMIT ?5;

-- part: floor
AND (last_failure_at, id) < (?2, ?3) AND last_failure_at >= ?4
ORDER BY last_failure_at DESC, id DESC LIMIT 1 OFFSET ?5;

-- part: page
-- The letters of a filter before the position (?15, ?16) down to (?17, ?18); positions stand for ?7 and ?8.
{letter_filter} AND (letter.last_failure_at, letter.id) < (?15, ?16) AND (letter.last_failure_at, letter.id) >= (?17, ?18)
ORDER BY letter.last_failure_at DESC, letter.id DESC LIMIT ?19;

-- name: letters_by_id
SELECT letter.last_failure_at, letter.id FROM dead_letters letter NOT INDEXED
WHERE letter.id IN (SELECT value FROM json_each(?11)) AND {page};

-- name: letter_lines
SELECT {letter_line}
FROM letters letter JOIN lanes ON lanes.id = lane_id WHERE letter.id IN (SELECT value FROM json_each(?));

-- part: receipts
(SELECT json_group_object(sink, receipt) FROM receipts WHERE letter_id = letter.id);

-- name: freed_later
SELECT id FROM dead_letters WHERE id IN (SELECT value FROM json_each(?1)) AND freed > ?2;

-- name: letter_groups
SELECT letter_groups.id, fingerprint, pipeline, stage, code, category, exception, first_at, last_at
FROM letter_groups JOIN lanes ON lanes.id = lane_id WHERE letter_groups.id IN (SELECT value FROM json_each(?));

-- name: taken_letters
SELECT group_id, sum(letters) AS letters FROM letters_by_group
WHERE is_taken = 1 AND letters > 0 AND group_id IN (SELECT value FROM json_each(?1)) AND (?2 IS NULL OR state = ?2) GROUP BY group_id;

-- name: taken_in_span
SELECT group_id, count(*) AS letters FROM dead_letters INDEXED BY dead_letters_taken
WHERE replay_id IS NOT NULL AND verdict IS NULL AND state <> 'replaying'
    AND group_id IN (SELECT value FROM json_each(?1)) AND (?2 IS NULL OR state = ?2) AND last_failure_at >= ?3 AND last_failure_at < ?4
GROUP BY group_id;

-- name: count_in_span
-- The letters of each group and state whose last failure lies in a span of time, counted in the index alone.
WITH pairs (of_group, of_state) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?1))
SELECT of_group AS "group", of_state AS state, (SELECT count(*) FROM dead_letters INDEXED BY dead_letters_group
    WHERE group_id = of_group AND state = of_state AND last_failure_at >= ?2 AND last_failure_at < ?3) AS letters
FROM pairs;

-- name: count_named_by_group
-- With the newest of each: beside max(), the other columns are of the row it was found in.
SELECT group_id, state, count(*) AS letters, sum(replay_id IS NOT NULL AND state IN ('open', 'triaged', 'ready')) AS taken, max(last_failure_at) AS last_failure_at, id
FROM dead_letters WHERE id IN (SELECT value FROM json_each(?)) GROUP BY group_id, state;

-- name: letter_heads
-- The newest letter of each group and state whose last failure lies in a span of time, read off the index alone.
WITH pairs (of_group, of_state) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?1))
SELECT of_group,
    (SELECT last_failure_at FROM dead_letters WHERE group_id = of_group AND state = of_state
        AND last_failure_at >= ?2 AND last_failure_at < ?3 ORDER BY last_failure_at DESC, id DESC LIMIT 1) AS last_failure_at,
    (SELECT id FROM dead_letters WHERE group_id = of_group AND state = of_state
        AND last_failure_at >= ?2 AND last_failure_at < ?3 ORDER BY last_failure_at DESC, id DESC LIMIT 1) AS id
FROM pairs;

-- name: group_trend
SELECT group_id, hour, letters FROM json_each(?1) CROSS JOIN letter_trend ON group_id = value AND hour > ?2;
