-- SPDX-License-Identifier: Apache-2.0
-- Settling: the outcome of a dispatch, its attempt, its dead letter, and its notices, in one transaction.

-- name: touch_group
INSERT INTO letter_groups (fingerprint, lane_id, code, category, exception, first_at, last_at) VALUES ($1, $2, $3, $4, $5, $6, $6)
ON CONFLICT (fingerprint, lane_id) DO UPDATE SET first_at = least(letter_groups.first_at, excluded.first_at),
    last_at = greatest(letter_groups.last_at, excluded.last_at);

-- name: was_settled
SELECT 1 FROM attempts WHERE job_id = $1 AND dispatch = $2 AND outcome <> 'crashed';
