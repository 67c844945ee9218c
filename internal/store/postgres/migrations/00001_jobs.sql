-- +goose Up
-- Times and durations are microseconds, times since 1970 UTC; a time
-- not set is -62135596800000000, the first microsecond of year 1.
-- phase: 0 waiting, 1 ready, 2 leased, 3 done.
-- held: whether open_deps is not 0, so that counting it down changes no index.
-- listed: minus created_at where a search finds the job, so that a page is in
-- the order of (listed, key); 0 elsewhere.
CREATE SEQUENCE job_numbers;
-- +goose StatementBegin
CREATE TABLE jobs (
    seq         BIGINT   PRIMARY KEY DEFAULT nextval('job_numbers'),
    lane        BIGINT   NOT NULL,
    order_time  BIGINT   NOT NULL,
    due_at      BIGINT   NOT NULL,
    lease_until BIGINT   NOT NULL,
    settled_at  BIGINT   NOT NULL,
    updated_at  BIGINT   NOT NULL,
    started_at  BIGINT   NOT NULL,
    created_at  BIGINT   NOT NULL,
    listed      BIGINT   NOT NULL,
    children    BIGINT NOT NULL,
    size        BIGINT NOT NULL,
    lease       BIGINT   NOT NULL,
    parent      BIGINT   NOT NULL,
    priority    INTEGER  NOT NULL,
    runs        INTEGER  NOT NULL,
    failures    INTEGER  NOT NULL,
    run_limit   INTEGER  NOT NULL,
    open_deps   INTEGER  NOT NULL,
    failed_deps INTEGER  NOT NULL,
    phase       SMALLINT NOT NULL,
    held        SMALLINT NOT NULL,
    apart       SMALLINT NOT NULL,
    ident       BYTEA    NOT NULL,
    contract    TEXT     NOT NULL,
    scope       TEXT     NOT NULL,
    key         TEXT     COLLATE "C" NOT NULL,
    kind        TEXT     NOT NULL,
    state       TEXT     NOT NULL,
    queue       TEXT     NOT NULL,
    worker      TEXT     NOT NULL,
    owner       TEXT     NOT NULL,
    trace       TEXT     NOT NULL,
    run_id      BYTEA,
    alias       BYTEA,
    definition  BYTEA,
    payload     BYTEA,
    progress    BYTEA,
    result      BYTEA,
    failure     BYTEA
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- +goose StatementEnd
CREATE UNIQUE INDEX jobs_ident ON jobs (ident);
CREATE UNIQUE INDEX jobs_alias ON jobs (alias) WHERE alias IS NOT NULL;
CREATE INDEX jobs_owner   ON jobs (contract, owner, seq) WHERE owner <> '';
CREATE INDEX jobs_parent  ON jobs (parent, seq) WHERE parent > 0;
CREATE INDEX jobs_size    ON jobs (contract, size) WHERE size > 0;
CREATE INDEX jobs_ready   ON jobs (lane, priority DESC, order_time, seq) WHERE phase = 1;
CREATE INDEX jobs_due     ON jobs (due_at) WHERE phase = 0 AND held = 0;
CREATE INDEX jobs_lapse   ON jobs (lease_until) WHERE phase = 2;
CREATE INDEX jobs_settled ON jobs (contract, settled_at, seq) WHERE phase = 3;
-- Each search names the condition of its own index and so can use no other,
-- whatever the statistics say.
CREATE INDEX jobs_listed     ON jobs (contract, priority, listed, key) WHERE listed <> 0 AND priority <> 0;
CREATE INDEX jobs_of_queue   ON jobs (contract, queue, priority, listed, key) WHERE listed <> 0 AND queue <> '';
CREATE INDEX jobs_in_state   ON jobs (contract, state, priority, listed, key) WHERE listed <> 0 AND state <> '';
CREATE INDEX jobs_of_q_state ON jobs (contract, queue, state, priority, listed, key) WHERE listed <> 0;

CREATE TABLE bodies (seq BIGINT NOT NULL, part BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (seq, part));

CREATE TABLE events (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seq BIGINT NOT NULL, cause TEXT NOT NULL, prev TEXT NOT NULL, next TEXT NOT NULL, run_id BYTEA, at BIGINT NOT NULL, reason TEXT NOT NULL);
CREATE INDEX events_job ON events (seq, id);

CREATE TABLE outbox (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, contract TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, seq BIGINT NOT NULL, cause TEXT NOT NULL, prev TEXT NOT NULL, next TEXT NOT NULL, at BIGINT NOT NULL, reason TEXT NOT NULL, body BYTEA);
CREATE INDEX outbox_contract ON outbox (contract, id);

CREATE TABLE dead_letters (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, contract TEXT NOT NULL, cause TEXT NOT NULL, buried_at BIGINT NOT NULL, job BYTEA NOT NULL);
CREATE INDEX dead_letters_contract ON dead_letters (contract, id);
CREATE INDEX dead_letters_age ON dead_letters (contract, buried_at, id);

CREATE TABLE edges (dependent BIGINT NOT NULL, dependency BIGINT NOT NULL, PRIMARY KEY (dependent, dependency));
CREATE INDEX edges_dependency ON edges (dependency, dependent);

CREATE TABLE queues (lane BIGINT NOT NULL, contract TEXT NOT NULL, queue TEXT NOT NULL, paused BIGINT NOT NULL, run_limit BIGINT NOT NULL, PRIMARY KEY (lane));
CREATE TABLE counts (lane BIGINT NOT NULL, slot BIGINT NOT NULL, contract TEXT NOT NULL, queue TEXT NOT NULL, waiting BIGINT NOT NULL, delayed BIGINT NOT NULL, ready BIGINT NOT NULL, leased BIGINT NOT NULL, PRIMARY KEY (lane, slot));
CREATE TABLE records (kind TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, body BYTEA NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (kind, key));
CREATE INDEX records_owner ON records (kind, owner, key);
CREATE INDEX records_age ON records (expires_at) WHERE expires_at > 0;
CREATE TABLE duties (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until BIGINT NOT NULL);

-- +goose Down
DROP TABLE duties; DROP TABLE records; DROP TABLE counts; DROP TABLE queues; DROP TABLE edges;
DROP TABLE dead_letters; DROP TABLE outbox; DROP TABLE events; DROP TABLE bodies; DROP TABLE jobs; DROP SEQUENCE job_numbers;
