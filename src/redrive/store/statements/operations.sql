-- SPDX-License-Identifier: Apache-2.0
-- The operator log.

-- name: log
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason)
VALUES ($1::double precision, $2::text, $3::text, $4::text, $5::text, $6::text);

-- name: log_letters
INSERT INTO operations (at, actor, verb, subject_kind, subject_id, reason, letters, change)
VALUES ($1::double precision, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bigint, $8::text);

-- part: act
operations.id, at, actor, verb, subject_kind || ' ' || subject_id AS subject, subject_kind, subject_id, reason, letters;

-- name: operations
SELECT {act}, change FROM operations ORDER BY id DESC LIMIT $1::bigint;

-- name: operations_before
SELECT {act}, change FROM operations WHERE id < $1::bigint ORDER BY id DESC LIMIT $2::bigint;

-- name: operations_on
SELECT {act}, change FROM operations WHERE subject_kind = $1::text AND subject_id = $2::text ORDER BY id;
