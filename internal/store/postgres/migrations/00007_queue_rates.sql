-- +goose Up
-- The rate of starts of a queue, 0 for none, with its period in microseconds. The columns live_ have
-- what an operator has set in place of the configuration, NULL for what was not set.
ALTER TABLE queues
    ADD COLUMN rate BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN rate_period BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN live_run_limit BIGINT,
    ADD COLUMN live_rate BIGINT,
    ADD COLUMN live_rate_period BIGINT;
