-- +goose Up
-- Times and durations are microseconds, times since 1970 UTC; a time
-- not set is -62135596800000000, the first microsecond of year 1.
-- phase: 0 waiting, 1 ready, 2 leased, 3 done.
-- held: whether open_deps is not 0, so that counting it down changes no index.
-- listed: minus created_at where a search finds the job, so that a page is in
-- the order of (listed, key); 0 elsewhere.
-- +goose StatementBegin
CREATE TABLE jobs (
    seq         INTEGER PRIMARY KEY,
    ident       BLOB    NOT NULL,
    contract    TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    phase       INTEGER NOT NULL,
    order_time  INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    run_id      BLOB,
    lease_until INTEGER NOT NULL,
    worker      TEXT    NOT NULL,
    runs        INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    open_deps   INTEGER NOT NULL,
    held        INTEGER NOT NULL,
    failed_deps INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    settled_at  INTEGER NOT NULL,
    alias       BLOB,
    kind        TEXT    NOT NULL,
    queue       TEXT    NOT NULL,
    lane        INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    lease       INTEGER NOT NULL,
    run_limit   INTEGER NOT NULL,
    parent      INTEGER NOT NULL,
    trace       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    listed      INTEGER NOT NULL,
    children    INTEGER NOT NULL,
    size        INTEGER NOT NULL,
    apart       INTEGER NOT NULL,
    definition  BLOB,
    payload     BLOB,
    progress    BLOB,
    result      BLOB,
    failure     BLOB
) STRICT;
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

CREATE TABLE bodies (seq INTEGER NOT NULL, part INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (seq, part)) STRICT, WITHOUT ROWID;

CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, cause TEXT NOT NULL, prev TEXT NOT NULL, next TEXT NOT NULL, run_id BLOB, at INTEGER NOT NULL, reason TEXT NOT NULL) STRICT;
CREATE INDEX events_job ON events (seq, id);

CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, contract TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, cause TEXT NOT NULL, prev TEXT NOT NULL, next TEXT NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL, body BLOB) STRICT;
CREATE INDEX outbox_contract ON outbox (contract, id);

CREATE TABLE dead_letters (id INTEGER PRIMARY KEY AUTOINCREMENT, contract TEXT NOT NULL, cause TEXT NOT NULL, buried_at INTEGER NOT NULL, job BLOB NOT NULL) STRICT;
CREATE INDEX dead_letters_contract ON dead_letters (contract, id);
CREATE INDEX dead_letters_age ON dead_letters (contract, buried_at, id);

CREATE TABLE edges (dependent INTEGER NOT NULL, dependency INTEGER NOT NULL, PRIMARY KEY (dependent, dependency)) STRICT, WITHOUT ROWID;
CREATE INDEX edges_dependency ON edges (dependency, dependent);

CREATE TABLE queues (lane INTEGER NOT NULL, contract TEXT NOT NULL, queue TEXT NOT NULL, paused INTEGER NOT NULL, run_limit INTEGER NOT NULL, PRIMARY KEY (lane)) STRICT, WITHOUT ROWID;
CREATE TABLE counts (lane INTEGER NOT NULL, slot INTEGER NOT NULL, contract TEXT NOT NULL, queue TEXT NOT NULL, waiting INTEGER NOT NULL, delayed INTEGER NOT NULL, ready INTEGER NOT NULL, leased INTEGER NOT NULL, PRIMARY KEY (lane, slot)) STRICT, WITHOUT ROWID;
CREATE TABLE records (kind TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, body BLOB NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, PRIMARY KEY (kind, key)) STRICT;
CREATE INDEX records_owner ON records (kind, owner, key);
CREATE INDEX records_age ON records (expires_at) WHERE expires_at > 0;
CREATE TABLE duties (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;

-- The next number a job gets; numbers are taken in blocks and never used again.
CREATE TABLE numbers (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO numbers (name, next) VALUES ('jobs', 1);

-- +goose Down
DROP TABLE numbers; DROP TABLE duties; DROP TABLE records; DROP TABLE counts; DROP TABLE queues; DROP TABLE edges;
DROP TABLE dead_letters; DROP TABLE outbox; DROP TABLE events; DROP TABLE bodies; DROP TABLE jobs;
