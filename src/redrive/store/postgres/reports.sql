-- SPDX-License-Identifier: Apache-2.0
-- Reports: counts over many jobs and attempts.

-- name: newest_attempt
-- The attempt that was committed last, and the latest end of the last ones: within a commit they are in no order.
SELECT seq, job_id, dispatch, (SELECT max(ended_at) FROM (SELECT ended_at FROM attempts ORDER BY seq DESC LIMIT 1000) AS newest) AS ended_at
FROM attempts WHERE seq <= (SELECT attempts_frontier()) ORDER BY seq DESC LIMIT 1;

-- name: attempt_tally
-- Attempts committed after one and up to another, which ended after a time: how many, and how long, by lane, outcome (by its number)
-- and the upper limits $4 to $16.
SELECT lane_id, CASE outcome WHEN 'ok' THEN 0 WHEN 'retry' THEN 1 WHEN 'hold' THEN 2 WHEN 'dead' THEN 3 WHEN 'crashed' THEN 4
    WHEN 'cancelled' THEN 5 ELSE 6 END AS outcome, width, count(*) AS attempts, sum(took) AS seconds
FROM (SELECT lane_id, outcome, ended_at - started_at AS took FROM attempts
        WHERE seq > $1::bigint AND seq <= $2::bigint AND ended_at > $3::double precision) AS ended
    CROSS JOIN LATERAL (SELECT CASE WHEN took <= $4::double precision THEN 0 WHEN took <= $5::double precision THEN 1
        WHEN took <= $6::double precision THEN 2 WHEN took <= $7::double precision THEN 3 WHEN took <= $8::double precision THEN 4
        WHEN took <= $9::double precision THEN 5 WHEN took <= $10::double precision THEN 6 WHEN took <= $11::double precision THEN 7
        WHEN took <= $12::double precision THEN 8 WHEN took <= $13::double precision THEN 9 WHEN took <= $14::double precision THEN 10
        WHEN took <= $15::double precision THEN 11 WHEN took <= $16::double precision THEN 12 ELSE 13 END AS width) AS bucket
GROUP BY lane_id, outcome, width;
