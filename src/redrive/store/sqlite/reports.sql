-- SPDX-License-Identifier: Apache-2.0
-- Reports: counts over many jobs and attempts.

-- name: newest_attempt
-- The attempt that was committed last, and the latest end of the last ones: within a commit they are in no order.
SELECT seq, job_id, dispatch, (SELECT max(ended_at) FROM (SELECT ended_at FROM attempts ORDER BY seq DESC LIMIT 1000)) AS ended_at
FROM attempts ORDER BY seq DESC LIMIT 1;

-- name: attempt_tally
-- Attempts committed after one and up to another, which ended after a time: how many, and how long, by lane, outcome and the upper
-- limits ?4 to ?16. The three are one number, because sorting by numbers costs half of sorting by texts.
SELECT place / 128 AS lane_id, place / 16 % 8 AS outcome, place % 16 AS width, count(*) AS attempts, sum(taken) AS seconds FROM (
    SELECT taken, lane_id * 128 + 16 * CASE outcome WHEN 'ok' THEN 0 WHEN 'retry' THEN 1 WHEN 'hold' THEN 2 WHEN 'dead' THEN 3
        WHEN 'crashed' THEN 4 WHEN 'cancelled' THEN 5 ELSE 6 END + CASE WHEN taken <= ?4 THEN 0 WHEN taken <= ?5 THEN 1
        WHEN taken <= ?6 THEN 2 WHEN taken <= ?7 THEN 3 WHEN taken <= ?8 THEN 4 WHEN taken <= ?9 THEN 5 WHEN taken <= ?10 THEN 6
        WHEN taken <= ?11 THEN 7 WHEN taken <= ?12 THEN 8 WHEN taken <= ?13 THEN 9 WHEN taken <= ?14 THEN 10
        WHEN taken <= ?15 THEN 11 WHEN taken <= ?16 THEN 12 ELSE 13 END AS place
    FROM (SELECT lane_id, outcome, ended_at - started_at AS taken FROM attempts WHERE seq > ?1 AND seq <= ?2 AND ended_at > ?3))
GROUP BY place;
