-- +goose Up
-- The dead letters of a queue. Names may be too long for an index, which has their beginning.
CREATE INDEX dead_letters_queue ON dead_letters (contract, substr(queue,1,100), id);
