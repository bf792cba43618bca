-- SPDX-License-Identifier: Apache-2.0
-- The operator log.

-- name: acts_with_letter
-- Acts on many letters at once by which this one was changed: their log has the ids, as first and last of each unbroken row. That
-- alone decides; the time, with a day for clocks that differ, only spares reading the ids of acts before it failed.
SELECT {act}, (change::jsonb - 'letters')::text AS change FROM operations
WHERE (subject_kind = 'group' AND subject_id = $2::text OR subject_kind = 'filter')
    AND at >= $3::double precision - 86400 AND EXISTS (
        SELECT 1 FROM json_array_elements(change::json -> 'letters') AS ids (span)
        WHERE $1::bigint BETWEEN (span ->> 0)::bigint AND (span ->> 1)::bigint)
ORDER BY id;

-- name: acts_with_letters
-- Acts on many letters at once by which some of these ($1, between $2 and $3) were changed, each with the letter. Where the ids of an
-- act begin and end is looked at first: most acts are about none of a few letters.
SELECT {act}, (change::jsonb - 'letters')::text AS change, value AS letter
FROM (SELECT * FROM operations WHERE subject_kind IN ('filter', 'group')
        AND (change::json #>> '{letters,0,0}')::bigint <= $3::bigint
        AND (change::json #>> '{letters,-1,1}')::bigint >= $2::bigint) AS operations
    CROSS JOIN LATERAL json_array_elements(change::json -> 'letters') AS ids (span)
    JOIN (SELECT json_array_elements_text($1::json)::bigint AS value) AS given
        ON value BETWEEN (span ->> 0)::bigint AND (span ->> 1)::bigint
ORDER BY operations.id, value;
