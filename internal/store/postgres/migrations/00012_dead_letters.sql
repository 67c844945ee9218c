-- +goose Up
-- Dead letters by their job (seq), with what those of one reason have in common and when they were
-- replayed (0: they are open). Maintenance marks the letters of before, whose seq stays 0.
ALTER TABLE dead_letters
    ADD COLUMN seq BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN queue TEXT NOT NULL DEFAULT '',
    ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '',
    ADD COLUMN replayed_at BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN replayed_as BIGINT NOT NULL DEFAULT 0;
CREATE INDEX dead_letters_job ON dead_letters (seq) WHERE seq > 0;
CREATE INDEX dead_letters_alike ON dead_letters (fingerprint, id);
CREATE INDEX dead_letters_unmarked ON dead_letters (contract, id) WHERE fingerprint = '';
CREATE INDEX dead_letters_open ON dead_letters (contract, id, fingerprint, buried_at) WHERE replayed_at = 0;
-- The open dead letters of a queue.
ALTER TABLE counts ADD COLUMN dead BIGINT NOT NULL DEFAULT 0;
