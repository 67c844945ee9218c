-- +goose Up
-- Runs that counted as lost.
ALTER TABLE jobs ADD COLUMN lost_runs INTEGER NOT NULL DEFAULT 0;
