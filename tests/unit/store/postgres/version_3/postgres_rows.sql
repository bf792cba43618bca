-- SPDX-License-Identifier: Apache-2.0
-- Rows of version 3: what was stopped has a sentence.

INSERT INTO runs (pipeline, status, options, reason, items, is_fed, created_at, ended_at)
VALUES ('shop', 'aborted', '{}', '1 of 2 failed', 2, 1, 1000, 1100), ('shop', 'running', '{}', NULL, 2, 1, 1000, NULL);

INSERT INTO replays (pipeline, status, filter, options, cutoff, moves, marked_to, expected, pardoned, next_at, why, driven_until, actor, created_at)
SELECT 'shop', status, '{"pipeline":"shop"}', '{"plan":{"canary":[1,5]}}', 8, 3, 8, 2, '{}', 1002, why, 0, 'ann', 1002
FROM (VALUES ('running', NULL), ('paused', 'paused by "ann"')) AS replay (status, why);
