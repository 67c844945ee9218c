-- +goose Up
-- How many jobs of a queue are done. The counters of a queue have what changed while it had other
-- jobs, and done_counts what was left when these counters were removed: a count is the sum of both.
ALTER TABLE counts ADD COLUMN done INTEGER NOT NULL DEFAULT 0;
CREATE TABLE done_counts (
    contract TEXT NOT NULL,
    queue    TEXT NOT NULL,
    done     INTEGER NOT NULL,
    PRIMARY KEY (contract, queue)
) STRICT, WITHOUT ROWID;
INSERT INTO done_counts (contract, queue, done)
    SELECT j.contract, j.queue, count(*) FROM finished AS s CROSS JOIN jobs AS j
    WHERE j.seq=s.seq GROUP BY j.contract, j.queue;
-- What lists read: jobs that are done, by their state, and those of a queue where a search finds
-- them.
CREATE INDEX finished_state ON finished (contract, state, seq);
CREATE INDEX jobs_by_queue ON jobs (contract, queue, seq) WHERE listed IS NOT NULL AND seq > 0;
