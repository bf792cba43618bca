-- SPDX-License-Identifier: Apache-2.0
-- Notices for hooks and sinks: which are due, and the records they are about.

-- name: notices_for
-- The letter, or even the job, may have been pruned since: then the notice has what is left. Changes of one letter are delivered in
-- order, and those of breakers too: each waits until the one before it has been delivered.
SELECT outbox.id, outbox.job_id AS job, outbox.dispatch, attempts.attempt, outcome, code, message, decision, ended_at, attempts.round,
    coalesce(jobs.run_at, ended_at) AS run_at, http_status, notes, jobs.key, exception, letter_id AS letter, event, outbox.state, at, change_id AS change,
    outbox.run_id AS run, tries
FROM outbox LEFT JOIN attempts ON attempts.job_id = outbox.job_id AND attempts.dispatch = outbox.dispatch
    LEFT JOIN jobs ON jobs.id = outbox.job_id
WHERE outbox.lane_id = $1::bigint AND recipient = $2::text AND due_at <= $3::double precision
    AND (letter_id IS NULL OR NOT EXISTS (SELECT 1 FROM outbox earlier WHERE earlier.job_id = outbox.job_id
        AND earlier.letter_id = outbox.letter_id AND earlier.recipient = $2::text AND earlier.id < outbox.id))
    AND (change_id IS NULL OR outbox.id = (SELECT min(earlier.id) FROM outbox earlier
        WHERE earlier.lane_id = $1::bigint AND earlier.recipient = $2::text AND earlier.change_id IS NOT NULL))
ORDER BY due_at, outbox.id LIMIT $4::bigint;

-- name: listeners_of
SELECT topic, recipient FROM listeners WHERE topic IN ('letters', 'breakers', 'runs') AND pipeline = $1::text
ORDER BY topic, recipient;

-- name: drop_listeners
DELETE FROM listeners WHERE topic IN ('letters', 'breakers', 'runs') AND pipeline = $1::text;

-- name: add_listener
INSERT INTO listeners (pipeline, topic, recipient) VALUES ($1::text, $2::text, $3::text);

-- name: breakers_of_pipeline
SELECT lane_id, breaker FROM lane_breakers WHERE lane_id IN (SELECT id FROM lanes WHERE pipeline = $1::text)
ORDER BY breaker, lane_id;

-- name: drop_lane_breakers
DELETE FROM lane_breakers WHERE lane_id IN (SELECT id FROM lanes WHERE pipeline = $1::text);

-- name: add_lane_breaker
INSERT INTO lane_breakers (lane_id, breaker) VALUES ($1::bigint, $2::text);

-- name: take_notice
UPDATE outbox SET due_at = $1::double precision, tries = tries + 1 WHERE id = $2::bigint AND tries = $3::bigint;

-- name: postpone_notice
-- Only by the worker that took it last.
UPDATE outbox SET due_at = $1::double precision, tries = $2::bigint WHERE id = $3::bigint AND tries = $4::bigint;

-- name: drop_notice
DELETE FROM outbox WHERE id = $1::bigint;

-- name: put_receipt
-- Not of a letter that was pruned meanwhile.
INSERT INTO receipts (letter_id, sink, receipt, at)
SELECT id, $2::text, $3::text, $4::double precision FROM dead_letters WHERE id = $1::bigint
ON CONFLICT (letter_id, sink) DO UPDATE SET receipt = excluded.receipt, at = excluded.at;

-- name: undelivered
-- Undelivered notices by recipient: how many in all, how many due before $1, and the highest number of tries.
SELECT pipeline, recipient, count(*) AS notices, count(*) FILTER (WHERE due_at < $1::double precision) AS late, min(due_at) AS first_due_at, max(tries) AS tries
FROM outbox JOIN lanes ON lanes.id = lane_id
GROUP BY pipeline, recipient ORDER BY pipeline, recipient;

-- name: attempts_for_sink
-- The last attempts, the newest first.
SELECT attempts.dispatch, stage, round, attempt, outcome, code, http_status, attempts.started_at, ended_at,
    count(*) OVER () AS in_all
FROM attempts JOIN lanes ON lanes.id = lane_id WHERE job_id = $1::bigint AND attempts.dispatch <= $2::bigint
ORDER BY attempts.dispatch DESC LIMIT $3::bigint;

-- name: input_for_sink
-- The input of the stage that failed. Known only until the job runs again: then it may have been edited, or be another stage's.
SELECT stored.input FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE id = $1::bigint AND lane_id = $2::bigint AND round = $3::bigint AND erased_at IS NULL;

-- name: payload_for_sink
SELECT stored.payload FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE id = $1::bigint AND erased_at IS NULL;
