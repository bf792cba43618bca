-- SPDX-License-Identifier: Apache-2.0
-- Version 4: why a replay or a run was stopped is a value. Sentences of before stay as they are, as text.

ALTER TABLE replays RENAME COLUMN why TO reason;
UPDATE replays SET reason = json_build_object('kind', 'text', 'text', reason)::text WHERE reason IS NOT NULL;
UPDATE runs SET reason = json_build_object('kind', 'text', 'text', reason)::text WHERE reason IS NOT NULL;
