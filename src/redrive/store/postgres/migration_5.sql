-- SPDX-License-Identifier: Apache-2.0
-- Version 5: how the replay of a letter ended is its outcome; a verdict is what a rule answers.

ALTER TABLE dead_letters RENAME COLUMN verdict TO outcome;
ALTER TABLE dead_letters RENAME CONSTRAINT dead_letters_verdict_check TO dead_letters_outcome_check;
ALTER VIEW letters RENAME COLUMN verdict TO outcome;
