-- SPDX-License-Identifier: Apache-2.0
-- Version 3: a job can be skipped.

-- Only conditions change, and nothing that is stored: SQLite's own way to do that without copying every job and attempt.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'WHEN ''cancelled'' THEN', 'WHEN ''skipped'' THEN finished_at IS NOT NULL
            AND coalesce(lease_token, worker_id, error_code, result, result_from) IS NULL
        WHEN ''cancelled'' THEN') WHERE type = 'table' AND name = 'jobs';
UPDATE sqlite_schema SET sql = replace(sql, 'OR outcome = ''cancelled''', 'OR outcome = ''cancelled'' OR outcome = ''skipped''')
WHERE type = 'table' AND name = 'attempts';
PRAGMA writable_schema = RESET;

DROP TRIGGER jobs_replayed;
CREATE TRIGGER jobs_replayed AFTER UPDATE OF finished_at ON jobs
WHEN NEW.round > 1 AND NEW.finished_at IS NOT NULL AND NEW.status <> 'failed'
    AND EXISTS (SELECT 1 FROM dead_letters WHERE job_id = NEW.id AND state = 'replaying')
BEGIN
    UPDATE dead_letters SET state = 'resolved', verdict = CASE NEW.status WHEN 'cancelled' THEN 'cancelled' ELSE 'completed' END,
        closed_at = NEW.finished_at
    WHERE job_id = NEW.id AND state = 'replaying';
END;
