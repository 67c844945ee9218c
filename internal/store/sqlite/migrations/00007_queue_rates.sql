-- +goose Up
-- The rate of starts of a queue, 0 for none, with its period in microseconds. The columns live_ have
-- what an operator has set in place of the configuration, NULL for what was not set.
ALTER TABLE queues ADD COLUMN rate INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN rate_period INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN live_run_limit INTEGER;
ALTER TABLE queues ADD COLUMN live_rate INTEGER;
ALTER TABLE queues ADD COLUMN live_rate_period INTEGER;
