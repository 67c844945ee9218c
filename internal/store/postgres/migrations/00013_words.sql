-- +goose Up
-- Words of earlier versions: a leader is a node that has a role for a term, a dead letter has a
-- time of creation, and a job that waits for others has open dependencies.
ALTER TABLE leaders RENAME COLUMN name TO role;
ALTER TABLE leaders RENAME COLUMN holder TO node;
ALTER TABLE leaders RENAME COLUMN until TO term_end;
ALTER TABLE dead_letters RENAME COLUMN buried_at TO created_at;
ALTER TABLE waiting RENAME COLUMN held TO has_open_deps;
ALTER TABLE ready RENAME COLUMN held TO has_open_deps;
ALTER TABLE leases RENAME COLUMN held TO has_open_deps;
ALTER TABLE finished RENAME COLUMN held TO has_open_deps;
