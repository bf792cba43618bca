-- SPDX-License-Identifier: Apache-2.0
-- Version 2: campaigns become replays, and marking a replay's letters replaces stamping them.

DROP VIEW letters;
DROP VIEW letters_by_group;
DROP VIEW letters_by_campaign;
DROP TRIGGER letters_added;
DROP TRIGGER letters_moved;
DROP TRIGGER letters_pruned;
DROP TRIGGER letters_discarded;
DROP INDEX dead_letters_campaign;

ALTER TABLE dead_letters RENAME COLUMN campaign_id TO replay_id;
ALTER TABLE letter_tallies RENAME COLUMN campaign_id TO replay_id;
ALTER TABLE campaign_skips RENAME TO replay_skips;
ALTER TABLE replay_skips RENAME COLUMN campaign_id TO replay_id;

CREATE TABLE replays (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('marking', 'running', 'paused', 'stopped', 'cancelling', 'cancelled', 'done')),
    filter BLOB NOT NULL,
    options BLOB NOT NULL,
    cutoff INTEGER NOT NULL,
    moves INTEGER NOT NULL,
    marked_to INTEGER NOT NULL,
    expected INTEGER NOT NULL,
    pardoned BLOB NOT NULL,
    next_at REAL NOT NULL,
    why TEXT,
    note TEXT,
    driver TEXT,
    driven_until REAL NOT NULL,
    actor TEXT NOT NULL,
    created_at REAL NOT NULL,
    ended_at REAL,
    closed_at REAL,
    CHECK ((status IN ('cancelled', 'done')) = (ended_at IS NOT NULL)),
    CHECK (closed_at IS NULL OR ended_at IS NOT NULL)
) STRICT;

INSERT INTO replays (id, pipeline, status, filter, options, cutoff, moves, marked_to, expected, pardoned, next_at, why, note, driver,
    driven_until, actor, created_at, ended_at, closed_at)
SELECT id, pipeline, CASE status WHEN 'stamping' THEN 'marking' ELSE status END, selection, options, cutoff, moves, stamped_to, expected,
    pardoned, next_at, why, note, driver, driven_until, actor, created_at, ended_at, closed_at
FROM campaigns;

DROP TABLE campaigns;
CREATE INDEX replays_live ON replays (id) WHERE ended_at IS NULL;
CREATE INDEX dead_letters_replay ON dead_letters (replay_id, id) WHERE replay_id IS NOT NULL;

CREATE VIEW letters AS
SELECT letter.id, letter.job_id, letter.lane_id, letter.group_id, letter.round, letter.state, letter.replay_id, letter.verdict,
    letter.is_escalated, letter.follows, letter.owner, letter.key, letter.first_failure_at, letter.last_failure_at, letter.diagnosis,
    letter.assignee, letter.is_safe, letter.evidence, letter.closed_at, letter.moved, facts.code, facts.category, facts.is_retryable,
    facts.error_class, letter_groups.fingerprint, facts.reason, facts.message, facts.context, facts.stack
FROM dead_letters letter CROSS JOIN letter_facts facts ON facts.letter_id = letter.id
    CROSS JOIN letter_groups ON letter_groups.id = letter.group_id;

CREATE VIEW letters_by_group AS
SELECT group_id, CASE WHEN standing = 'completed' OR standing = 'cancelled' THEN 'resolved' WHEN standing = 'same' OR standing = 'other'
    THEN 'returned' ELSE standing END AS state,
    replay_id <> 0 AND standing IN ('open', 'triaged', 'ready') AS is_taken, letters
FROM letter_tallies;

CREATE VIEW letters_by_replay AS
SELECT replay_id, CASE WHEN standing IN ('open', 'triaged', 'ready') THEN 'waiting' ELSE standing END AS standing,
    sum(letters + pruned) AS letters
FROM letter_tallies WHERE replay_id <> 0 GROUP BY 1, 2;

CREATE TRIGGER letters_added AFTER INSERT ON dead_letters
BEGIN
    INSERT INTO letter_tallies (replay_id, group_id, standing, letters) VALUES (0, NEW.group_id, NEW.state, 1)
    ON CONFLICT DO UPDATE SET letters = letters + 1;
    INSERT INTO letter_trend (group_id, hour, letters) VALUES (NEW.group_id, CAST(NEW.last_failure_at / 3600 AS INTEGER), 1)
    ON CONFLICT DO UPDATE SET letters = letters + 1;
    UPDATE letter_groups SET first_letter = NEW.id WHERE id = NEW.group_id AND first_letter IS NULL;
END;

CREATE TRIGGER letters_moved AFTER UPDATE OF state, replay_id, verdict ON dead_letters WHEN NEW.counted = OLD.counted
BEGIN
    INSERT INTO letter_tallies (replay_id, group_id, standing, letters)
    VALUES (coalesce(OLD.replay_id, 0), OLD.group_id, coalesce(OLD.verdict, OLD.state), -1),
        (coalesce(NEW.replay_id, 0), NEW.group_id, coalesce(NEW.verdict, NEW.state), 1)
    ON CONFLICT DO UPDATE SET letters = letters + excluded.letters;
END;

CREATE TRIGGER letters_pruned AFTER DELETE ON dead_letters
BEGIN
    UPDATE letter_tallies SET letters = letters - 1, pruned = pruned + (OLD.verdict IS NOT NULL)
    WHERE replay_id = coalesce(OLD.replay_id, 0) AND group_id = OLD.group_id AND standing = coalesce(OLD.verdict, OLD.state);
    DELETE FROM letter_facts WHERE letter_id = OLD.id;
    DELETE FROM replay_skips WHERE letter_id = OLD.id AND replay_id = OLD.replay_id;
END;

CREATE TRIGGER letters_discarded AFTER UPDATE OF state ON dead_letters WHEN NEW.state = 'discarded' AND OLD.replay_id IS NOT NULL
BEGIN
    INSERT INTO replay_skips (replay_id, letter_id, reason, at)
    VALUES (OLD.replay_id, NEW.id, 'it was discarded meanwhile', NEW.last_failure_at);
END;
