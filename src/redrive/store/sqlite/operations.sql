-- SPDX-License-Identifier: Apache-2.0
-- The operator log.

-- name: acts_with_letter
-- Acts on many letters at once by which this one was changed: their log has the ids, as first and last of each unbroken row. That
-- alone decides; the time, with a day for clocks that differ, only spares reading the ids of acts before it failed.
SELECT {act}, json_remove(change, '$.letters') AS change FROM operations
WHERE (subject_kind = 'group' AND subject_id = ?2 OR subject_kind = 'filter') AND at >= ?3 - 86400 AND EXISTS (
    SELECT 1 FROM json_each(change, '$.letters') WHERE ?1 BETWEEN json_extract(value, '$[0]') AND json_extract(value, '$[1]'));

-- name: acts_with_letters
-- Acts on many letters at once by which some of these (?1, between ?2 and ?3) were changed, each with the letter. Where the ids of an
-- act begin and end is looked at first: most acts are about none of a few letters.
SELECT {act}, json_remove(change, '$.letters') AS change, given.value AS letter
FROM (SELECT id AS act FROM operations WHERE subject_kind IN ('filter', 'group'))
    CROSS JOIN operations ON operations.id = act
    CROSS JOIN json_each(change, '$.letters') AS ids
    CROSS JOIN json_each(?1) AS given ON given.value BETWEEN json_extract(ids.value, '$[0]') AND json_extract(ids.value, '$[1]')
WHERE json_extract(change, '$.letters[0][0]') <= ?3 AND json_extract(change, '$.letters[#-1][1]') >= ?2;
