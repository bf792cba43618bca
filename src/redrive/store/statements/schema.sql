-- SPDX-License-Identifier: Apache-2.0
-- What the schemas of both databases have in common besides their tables: indexes and views.

CREATE UNIQUE INDEX runs_key ON runs (pipeline, key) WHERE key IS NOT NULL;
-- Those whose status may change: few, however many there are.
CREATE INDEX runs_live ON runs (id) WHERE ended_at IS NULL AND status <> 'paused';

-- The key is NULL in most lanes, and compared like any other: one index serves claims with and without keys.
CREATE INDEX jobs_ready ON jobs (lane_id, lane_key, priority, run_at, id) WHERE status = 'queued';
-- By the token alone: comparing worker names costs more, and few jobs are leased at a time.
CREATE INDEX jobs_leased ON jobs (lease_token) WHERE status = 'processing';
CREATE INDEX jobs_unwanted ON jobs (worker_id) WHERE status = 'processing' AND cancel_asked = 1;
CREATE INDEX jobs_failed ON jobs (id) WHERE status = 'failed';
CREATE UNIQUE INDEX jobs_key ON jobs (pipeline, key) WHERE key IS NOT NULL AND status IN ('queued', 'processing', 'complete');
-- With jobs_key, every job of a key; written only when a job with a key ends without its result.
CREATE INDEX jobs_of_key ON jobs (key, id) WHERE key IS NOT NULL AND status IN ('failed', 'cancelled', 'skipped');
CREATE INDEX jobs_children ON jobs (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE UNIQUE INDEX jobs_of_run ON jobs (run_id, ordinal) WHERE run_id IS NOT NULL;
CREATE INDEX jobs_of_owner ON jobs (owner, id) WHERE owner IS NOT NULL;

CREATE UNIQUE INDEX attempts_of_job ON attempts (job_id, dispatch);

CREATE UNIQUE INDEX dead_letters_live ON dead_letters (job_id) WHERE outcome IS NULL AND state <> 'replaying';
CREATE INDEX dead_letters_of_job ON dead_letters (job_id);
CREATE INDEX dead_letters_group ON dead_letters (group_id, state, last_failure_at, id);
CREATE INDEX dead_letters_time ON dead_letters (last_failure_at, id);
CREATE INDEX dead_letters_owner ON dead_letters (owner, last_failure_at, id) WHERE owner IS NOT NULL;
CREATE INDEX dead_letters_key ON dead_letters (key, last_failure_at, id) WHERE key IS NOT NULL;
CREATE INDEX dead_letters_assignee ON dead_letters (assignee, last_failure_at, id) WHERE assignee IS NOT NULL;
CREATE INDEX dead_letters_escalated ON dead_letters (last_failure_at, id) WHERE is_escalated = 1;
CREATE INDEX dead_letters_taken ON dead_letters (replay_id, id)
WHERE replay_id IS NOT NULL AND outcome IS NULL AND state <> 'replaying';
CREATE INDEX dead_letters_replay ON dead_letters (replay_id, id) WHERE replay_id IS NOT NULL;
CREATE INDEX dead_letters_run ON dead_letters (run_id, last_failure_at, id) WHERE run_id IS NOT NULL;
CREATE INDEX dead_letters_follows ON dead_letters (follows) WHERE follows IS NOT NULL;

CREATE INDEX replays_live ON replays (id) WHERE ended_at IS NULL;

CREATE INDEX edits_of_letter ON edits (letter_id, part, id);
CREATE INDEX edits_of_job ON edits (job_id);

CREATE INDEX imports_of_job ON imports (job_id);

CREATE INDEX outbox_due ON outbox (lane_id, recipient, due_at);
CREATE INDEX outbox_of_job ON outbox (job_id);

CREATE INDEX operations_on ON operations (subject_kind, subject_id, id);

-- The values of a job, wherever they are: a small one is in its row, a large one in job_values. The input of the first stage is the payload.
-- Claiming and releasing have forms of their own, because they are done for every job: they only name large values, or read them with the
-- rows that they have changed.
CREATE VIEW values_of_jobs AS
SELECT id AS job_id,
    coalesce(payload, (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = 0)) AS payload,
    coalesce(input, CASE WHEN input_from = 0 THEN payload END,
        (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = input_from)) AS input,
    CASE WHEN result_from IS NULL THEN result
        ELSE (SELECT value FROM job_values WHERE job_id = jobs.id AND job_values.dispatch = result_from) END AS result
FROM jobs;

-- A letter as it is read: with its failure, and the fingerprint of its group.
CREATE VIEW letters AS
SELECT letter.id, letter.job_id, letter.lane_id, letter.group_id, letter.round, letter.state, letter.replay_id, letter.outcome,
    letter.is_escalated, letter.follows, letter.owner, letter.key, letter.first_failure_at, letter.last_failure_at, letter.diagnosis,
    letter.assignee, letter.is_safe, letter.evidence, letter.closed_at, letter.moved, facts.code, facts.category, facts.is_retryable,
    facts.exception, letter_groups.fingerprint, facts.reason, facts.message, facts.context, facts.stack
FROM dead_letters letter /* CROSS */ JOIN letter_facts facts ON facts.letter_id = letter.id
    /* CROSS */ JOIN letter_groups ON letter_groups.id = letter.group_id;

CREATE VIEW letters_by_replay AS
SELECT replay_id, CASE WHEN standing IN ('open', 'triaged', 'ready') THEN 'waiting' ELSE standing END AS standing,
    sum(letters + pruned)::bigint AS letters
FROM letter_tallies WHERE replay_id <> 0 GROUP BY 1, 2;

-- Every transition of a job, as one list; nothing of it is stored twice.
CREATE VIEW events AS
SELECT created_at AS at, id AS job_id, 0 AS dispatch, 0 AS part, 'queued' AS event, pipeline, NULL::text AS stage,
    NULL::integer AS attempt, NULL::text AS code, NULL::integer AS http_status, NULL::double precision AS duration_ms, NULL::text AS reason
FROM jobs
UNION ALL
SELECT started_at, job_id, dispatch, 1, 'processing', lanes.pipeline, lanes.stage, attempt, NULL, NULL, NULL, NULL
FROM attempts JOIN lanes ON lanes.id = lane_id
UNION ALL
SELECT last_attempt_at, jobs.id, dispatch, 1, 'processing', lanes.pipeline, lanes.stage, attempt, NULL, NULL, NULL, NULL
FROM jobs JOIN lanes ON lanes.id = lane_id WHERE status = 'processing'
UNION ALL
SELECT ended_at, job_id, attempts.dispatch, 2,
    CASE outcome WHEN 'dead' THEN 'failed'
        WHEN 'ok' THEN CASE WHEN jobs.status = 'complete' AND jobs.dispatch = attempts.dispatch THEN 'complete' ELSE 'checkpoint' END
        ELSE outcome END,
    lanes.pipeline, lanes.stage, attempts.attempt, code, http_status, (ended_at - attempts.started_at) * 1000, decision::jsonb ->> 'reason'
FROM attempts JOIN jobs ON jobs.id = job_id JOIN lanes ON lanes.id = attempts.lane_id
UNION ALL
SELECT finished_at, id, dispatch, 3, 'cancelled', pipeline, NULL, attempt, NULL, NULL, NULL, NULL
FROM jobs WHERE status = 'cancelled' AND NOT EXISTS (
    SELECT 1 FROM attempts WHERE job_id = jobs.id AND attempts.dispatch = jobs.dispatch AND outcome = 'cancelled');
