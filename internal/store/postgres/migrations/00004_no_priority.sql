-- +goose Up
-- Searches find jobs without a priority, which is 0. FetchBox and Images, whose jobs have none,
-- stored a 5 before.
DROP INDEX jobs_listed;
UPDATE jobs SET priority = 0 WHERE contract IN ('fetchbox', 'images') AND priority <> 0;
CREATE INDEX jobs_listed ON jobs (contract, priority, listed, key)
    WHERE listed <> 0 AND contract <> '';
