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
WHERE outbox.lane_id = ?1 AND recipient = ?2 AND due_at <= ?3
    AND (letter_id IS NULL OR NOT EXISTS (SELECT 1 FROM outbox earlier WHERE earlier.job_id = outbox.job_id
        AND earlier.letter_id = outbox.letter_id AND earlier.recipient = ?2 AND earlier.id < outbox.id))
    AND (change_id IS NULL OR outbox.id = (SELECT min(earlier.id) FROM outbox earlier
        WHERE earlier.lane_id = ?1 AND earlier.recipient = ?2 AND earlier.change_id IS NOT NULL))
ORDER BY due_at, outbox.id LIMIT ?4;

-- name: listeners_of
SELECT topic, recipient FROM listeners WHERE topic IN ('letters', 'breakers', 'runs') AND pipeline = ?;

-- name: drop_listeners
DELETE FROM listeners WHERE topic IN ('letters', 'breakers', 'runs') AND pipeline = ?;

-- name: add_listener
INSERT INTO listeners (pipeline, topic, recipient) VALUES (?, ?, ?);

-- name: breakers_of_pipeline
SELECT lane_id, breaker FROM lane_breakers WHERE lane_id IN (SELECT id FROM lanes WHERE pipeline = ?);

-- name: drop_lane_breakers
DELETE FROM lane_breakers WHERE lane_id IN (SELECT id FROM lanes WHERE pipeline = ?);

-- name: add_lane_breaker
INSERT INTO lane_breakers (lane_id, breaker) VALUES (?, ?);

-- name: take_notice
UPDATE outbox SET due_at = ?, tries = tries + 1 WHERE id = ? AND tries = ?;

-- name: postpone_notice
-- Only by the worker that took it last.
UPDATE outbox SET due_at = ?1, tries = ?2 WHERE id = ?3 AND tries = ?4;

-- name: drop_notice
DELETE FROM outbox WHERE id = ?;

-- name: put_receipt
-- Not of a letter that was pruned meanwhile.
INSERT INTO receipts (letter_id, sink, receipt, at) SELECT id, ?2, ?3, ?4 FROM dead_letters WHERE id = ?1
ON CONFLICT DO UPDATE SET receipt = excluded.receipt, at = excluded.at;

-- name: undelivered
-- Undelivered notices by recipient: how many in all, how many due before ?1, and the highest number of tries.
SELECT pipeline, recipient, count(*) AS notices, sum(due_at < ?1) AS late, min(due_at) AS first_due_at, max(tries) AS tries FROM outbox JOIN lanes ON lanes.id = lane_id
GROUP BY pipeline, recipient ORDER BY pipeline, recipient;

-- name: letter_for_sink
SELECT letter.id, lanes.pipeline, lanes.stage, letter.round, letter.code, letter.category, letter.is_retryable, letter.exception,
    letter.message, letter.stack, letter.fingerprint, letter.reason, letter.context, letter.first_failure_at, letter.last_failure_at,
    letter.is_escalated, letter.follows, letter.key, letter.owner, letter.diagnosis, letter.assignee, letter.evidence, letter.replay_id
FROM letters letter JOIN lanes ON lanes.id = letter.lane_id WHERE letter.id = ?;

-- name: attempts_for_sink
-- The last attempts, the newest first.
SELECT attempts.dispatch, stage, round, attempt, outcome, code, http_status, attempts.started_at, ended_at,
    count(*) OVER () AS in_all
FROM attempts JOIN lanes ON lanes.id = lane_id WHERE job_id = ?1 AND attempts.dispatch <= ?2
ORDER BY attempts.dispatch DESC LIMIT ?3;

-- name: input_for_sink
-- The input of the stage that failed. Known only until the job runs again: then it may have been edited, or be another stage's.
SELECT stored.input FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE id = ?1 AND lane_id = ?2 AND round = ?3 AND erased_at IS NULL;

-- name: payload_for_sink
SELECT stored.payload FROM jobs JOIN values_of_jobs stored ON stored.job_id = jobs.id
WHERE id = ? AND erased_at IS NULL;
