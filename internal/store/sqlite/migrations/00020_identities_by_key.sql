-- +goose Up
-- Entries of the index of identities are in the order of keys, as far as their first 24 characters
-- say it, and not in that of hashes: keys that rise or are alike are then on the same pages
-- (decision 0128).
ALTER TABLE jobs ADD COLUMN key_start TEXT GENERATED ALWAYS AS (substr(key,1,24)) VIRTUAL;
DROP INDEX jobs_identity;
CREATE UNIQUE INDEX jobs_identity ON jobs (key_start, identity);
