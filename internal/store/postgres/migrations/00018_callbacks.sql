-- +goose Up
-- Where the events of a job go (WH-005).
ALTER TABLE jobs ADD COLUMN callback text NOT NULL DEFAULT '';
