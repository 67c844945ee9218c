-- +goose Up
-- A job is a row of jobs, which has the facts, and a row of the table of its phase, which has what
-- moves it and what it has come to: waiting, ready, leases or finished. A move takes a row from one
-- of these and puts a row into another. A number that is 0 and a time that is not set are NULL.
-- held: 1 where open_deps is not 0, so that counting it down changes no index.
-- out_of_line: which of the bodies of this row are in the table bodies.
-- queue_hash, priority and order_time of ready, and contract of finished, are copies for its index.
CREATE TABLE waiting (
    seq             BIGINT PRIMARY KEY,
    due_at          BIGINT NOT NULL,
    lease_until     BIGINT,
    updated_at      BIGINT,
    started_at      BIGINT,
    finished_at     BIGINT,
    queue_hash      BIGINT,
    order_time      BIGINT,
    priority        INTEGER,
    attempts        INTEGER,
    failed_attempts INTEGER,
    lost_attempts   INTEGER,
    open_deps       INTEGER,
    failed_deps     INTEGER,
    held            SMALLINT,
    out_of_line     SMALLINT,
    state           TEXT NOT NULL,
    worker          TEXT NOT NULL,
    contract        TEXT,
    run_id          BYTEA,
    progress        BYTEA,
    result          BYTEA,
    failure         BYTEA
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
CREATE TABLE ready (LIKE waiting INCLUDING ALL) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
CREATE TABLE leases (LIKE waiting INCLUDING ALL) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
CREATE TABLE finished (LIKE waiting INCLUDING ALL) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
INSERT INTO waiting (
    seq, due_at, lease_until, updated_at, started_at, finished_at, attempts, failed_attempts,
    lost_attempts, open_deps, failed_deps, held, out_of_line, state, worker, run_id, progress,
    result, failure)
SELECT
    seq, due_at, NULLIF(lease_until, -62135596800000000),
    NULLIF(updated_at, -62135596800000000), NULLIF(started_at, -62135596800000000),
    NULLIF(settled_at, -62135596800000000), NULLIF(runs, 0), NULLIF(failures, 0),
    NULLIF(lost_runs, 0), NULLIF(open_deps, 0), NULLIF(failed_deps, 0), NULLIF(held, 0),
    NULLIF(apart & 28, 0), state, worker, run_id, progress, result, failure
    FROM jobs WHERE phase = 0;
INSERT INTO ready (
    seq, due_at, lease_until, updated_at, started_at, finished_at, queue_hash, order_time,
    priority, attempts, failed_attempts, lost_attempts, open_deps, failed_deps, held, out_of_line,
    state, worker, run_id, progress, result, failure)
SELECT
    seq, due_at, NULLIF(lease_until, -62135596800000000),
    NULLIF(updated_at, -62135596800000000), NULLIF(started_at, -62135596800000000),
    NULLIF(settled_at, -62135596800000000), lane, order_time, priority, NULLIF(runs, 0),
    NULLIF(failures, 0), NULLIF(lost_runs, 0), NULLIF(open_deps, 0), NULLIF(failed_deps, 0),
    NULLIF(held, 0), NULLIF(apart & 28, 0), state, worker, run_id, progress, result, failure
    FROM jobs WHERE phase = 1;
INSERT INTO leases (
    seq, due_at, lease_until, updated_at, started_at, finished_at, attempts, failed_attempts,
    lost_attempts, open_deps, failed_deps, held, out_of_line, state, worker, run_id, progress,
    result, failure)
SELECT
    seq, due_at, lease_until, NULLIF(updated_at, -62135596800000000),
    NULLIF(started_at, -62135596800000000), NULLIF(settled_at, -62135596800000000),
    NULLIF(runs, 0), NULLIF(failures, 0), NULLIF(lost_runs, 0), NULLIF(open_deps, 0),
    NULLIF(failed_deps, 0), NULLIF(held, 0), NULLIF(apart & 28, 0), state, worker, run_id,
    progress, result, failure
    FROM jobs WHERE phase = 2;
INSERT INTO finished (
    seq, due_at, lease_until, updated_at, started_at, finished_at, attempts, failed_attempts,
    lost_attempts, open_deps, failed_deps, held, out_of_line, state, worker, contract, run_id,
    progress, result, failure)
SELECT
    seq, due_at, NULLIF(lease_until, -62135596800000000),
    NULLIF(updated_at, -62135596800000000), NULLIF(started_at, -62135596800000000), settled_at,
    NULLIF(runs, 0), NULLIF(failures, 0), NULLIF(lost_runs, 0), NULLIF(open_deps, 0),
    NULLIF(failed_deps, 0), NULLIF(held, 0), NULLIF(apart & 28, 0), state, worker, contract,
    run_id, progress, result, failure
    FROM jobs WHERE phase = 3;
CREATE INDEX waiting_due ON waiting (due_at) WHERE held IS NULL;
CREATE INDEX ready_order ON ready (queue_hash, priority DESC, order_time, seq);
CREATE INDEX leases_end ON leases (lease_until);
CREATE INDEX finished_age ON finished (contract, finished_at, seq);

-- What searches by state find; those without a state read jobs.
CREATE TABLE searchable (
    seq      BIGINT PRIMARY KEY,
    listed   BIGINT NOT NULL,
    priority INTEGER NOT NULL,
    contract TEXT NOT NULL,
    queue    TEXT NOT NULL,
    state    TEXT NOT NULL,
    key      TEXT COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
INSERT INTO searchable (seq, listed, priority, contract, queue, state, key)
    SELECT seq, listed, priority, contract, queue, state, key FROM jobs WHERE listed <> 0;
CREATE INDEX searchable_state ON searchable (contract, state, priority, listed, key)
    WHERE state <> '';
CREATE INDEX searchable_queue_state
    ON searchable (contract, queue, state, priority, listed, key);

-- The facts.
CREATE TABLE facts (
    seq            BIGINT NOT NULL,
    order_time     BIGINT NOT NULL,
    created_at     BIGINT,
    listed         BIGINT,
    lease          BIGINT,
    retry_base     BIGINT,
    retry_max      BIGINT,
    parent         BIGINT,
    children       BIGINT,
    size           BIGINT,
    priority       INTEGER NOT NULL,
    max_attempts   INTEGER,
    failed_before  INTEGER,
    retry_strategy SMALLINT,
    out_of_line    SMALLINT,
    identity       BYTEA NOT NULL,
    contract       TEXT NOT NULL,
    scope          TEXT NOT NULL,
    key            TEXT COLLATE "C" NOT NULL,
    kind           TEXT NOT NULL,
    queue          TEXT NOT NULL,
    owner          TEXT NOT NULL,
    trace          TEXT NOT NULL,
    alias          BYTEA,
    definition     BYTEA,
    payload        BYTEA
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
INSERT INTO facts (
    seq, order_time, created_at, listed, lease, retry_base, retry_max, parent, children, size,
    priority, max_attempts, failed_before, retry_strategy, out_of_line, identity, contract, scope,
    key, kind, queue, owner, trace, alias, definition, payload)
SELECT
    seq, order_time, NULLIF(created_at, -62135596800000000), NULLIF(listed, 0),
    NULLIF(lease, 0), NULLIF(retry_base, 0), NULLIF(retry_max, 0), NULLIF(parent, 0),
    NULLIF(children, 0), NULLIF(size, 0), priority, NULLIF(run_limit, 0),
    NULLIF(retry_after, 0), NULLIF(retry_strategy, 0), NULLIF(apart & 3, 0), ident, contract,
    scope, key, kind, queue, owner, trace, alias, definition, payload
    FROM jobs;
DROP TABLE jobs;
ALTER TABLE facts RENAME TO jobs;
ALTER TABLE jobs ADD CONSTRAINT jobs_pkey PRIMARY KEY (seq);
CREATE UNIQUE INDEX jobs_identity ON jobs (identity);
CREATE UNIQUE INDEX jobs_alias ON jobs (alias) WHERE alias IS NOT NULL;
CREATE INDEX jobs_owner  ON jobs (contract, owner, seq) WHERE owner <> '';
CREATE INDEX jobs_parent ON jobs (parent, seq) WHERE parent > 0;
CREATE INDEX jobs_size   ON jobs (contract, size) WHERE size > 0;
-- Each search names the condition of its own index and so can use no other, whatever the
-- statistics say.
CREATE INDEX jobs_listed   ON jobs (contract, priority, listed, key)
    WHERE listed IS NOT NULL AND contract <> '';
CREATE INDEX jobs_of_queue ON jobs (contract, queue, priority, listed, key)
    WHERE listed IS NOT NULL AND queue <> '';

-- Words of earlier versions.
ALTER TABLE queues RENAME COLUMN lane TO queue_hash;
ALTER TABLE counts RENAME COLUMN lane TO queue_hash;
ALTER TABLE duties RENAME TO leaders;
