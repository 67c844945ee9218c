-- +goose Up
-- The open dead letters of jobs, by their numbers: those that were replayed are not read past.
CREATE INDEX dead_letters_open_job ON dead_letters (seq) WHERE seq > 0 AND replayed_at = 0;
-- What counts of jobs read alone: kinds, where jobs have one, and workers. Of what waits and what is
-- ready only jobs that had a worker before have an entry.
CREATE INDEX jobs_kind ON jobs (contract, kind) WHERE kind <> '';
CREATE INDEX waiting_worker ON waiting (worker, seq) WHERE worker <> '';
CREATE INDEX ready_worker ON ready (worker, seq) WHERE worker <> '';
DROP INDEX finished_state;
CREATE INDEX finished_state ON finished (contract, state, seq) INCLUDE (worker);
