-- +goose Up
-- The ends of runs that workers have recorded in transactions of their own, and that a node has not
-- carried out yet. recorded_at: microseconds since 1970 UTC.
CREATE TABLE run_ends (
    seq         BIGINT NOT NULL,
    run_id      BYTEA NOT NULL,
    recorded_at BIGINT NOT NULL,
    succeeded   BOOLEAN NOT NULL,
    retryable   BOOLEAN,
    error       TEXT,
    error_type  TEXT,
    result      BYTEA,
    PRIMARY KEY (seq, run_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);

-- The functions for workers are in the schema millrace where the tables are in public, else beside
-- the tables: several stores in one database do not share them. They run with the rights of their
-- owner. A row of jobs is locked before that of leases, as nodes do it, and so weakly that
-- heartbeats go on; whoever takes the job from its run waits for the end of the transaction or
-- passes over the job. run_ends.go of the store has the other side.
-- +goose StatementBegin
DO $migration$
DECLARE
    tables name := pg_catalog.current_schema();
    functions name := CASE tables WHEN 'public' THEN 'millrace' ELSE tables END;
BEGIN
    EXECUTE pg_catalog.format($body$
CREATE FUNCTION %1$I.record_run_end(run uuid, succeeded boolean, retryable boolean, error text,
    error_type text, result text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    id bytea := uuid_send(run);
    number bigint := ('x' || left(replace(run::text, '-', ''), 12))::bit(48)::bigint;
    idle interval := current_setting('idle_in_transaction_session_timeout')::interval;
    recorded boolean := false;
BEGIN
    IF run IS NULL THEN
        RAISE EXCEPTION 'MILLRACE_INVALID: run_id is null' USING ERRCODE = 'MR002';
    END IF;
    PERFORM 1 FROM %1$I.jobs AS j WHERE j.seq = number FOR KEY SHARE;
    PERFORM 1 FROM %1$I.leases AS l WHERE l.seq = number AND l.run_id = id FOR KEY SHARE;
    IF FOUND THEN
        INSERT INTO %1$I.run_ends (seq, run_id, recorded_at, succeeded, retryable, error,
            error_type, result)
        VALUES (number, id, (date_part('epoch', now()) * 1000000)::bigint, record_run_end.succeeded,
            record_run_end.retryable, record_run_end.error, record_run_end.error_type,
            convert_to(record_run_end.result, 'UTF8'))
        ON CONFLICT DO NOTHING;
        recorded := FOUND;
    END IF;
    IF NOT recorded THEN
        RAISE EXCEPTION 'MILLRACE_RUN_LOST: run %% is not the current run of its job', run
            USING ERRCODE = 'MR001', HINT = 'Roll back: another run has the job, or it is over.';
    END IF;
    -- A worker that is gone must not keep its job locked.
    IF idle = interval '0' OR idle > interval '10s' THEN
        PERFORM set_config('idle_in_transaction_session_timeout', '10s', true);
    END IF;
    PERFORM pg_notify('millrace', 'sql,-fug7gst0qtb4');
END $$
$body$, tables);
    EXECUTE pg_catalog.format($body$
CREATE FUNCTION %1$I.complete(run_id uuid, result json DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length(complete.result::text) > 4194304 THEN
        RAISE EXCEPTION 'MILLRACE_INVALID: result has more than 4194304 bytes'
            USING ERRCODE = 'MR002';
    END IF;
    -- Every argument has its type, so that no other function of this name fits better.
    PERFORM %2$I.record_run_end(complete.run_id, true, NULL::boolean, NULL::text, NULL::text,
        complete.result::text);
END $$
$body$, functions, tables);
    EXECUTE pg_catalog.format($body$
CREATE FUNCTION %1$I.fail(run_id uuid, error text, retryable boolean, error_type text DEFAULT '')
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF fail.error IS NULL OR fail.retryable IS NULL THEN
        RAISE EXCEPTION 'MILLRACE_INVALID: error or retryable is null' USING ERRCODE = 'MR002';
    END IF;
    IF char_length(fail.error_type) > 255 THEN
        RAISE EXCEPTION 'MILLRACE_INVALID: error_type has more than 255 characters'
            USING ERRCODE = 'MR002';
    END IF;
    PERFORM %2$I.record_run_end(fail.run_id, false, fail.retryable,
        left(fail.error, 16384), coalesce(fail.error_type, ''), NULL::text);
END $$
$body$, functions, tables);
    EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION
        %I.record_run_end(uuid, boolean, boolean, text, text, text),
        %2$I.complete(uuid, json), %2$I.fail(uuid, text, boolean, text) FROM PUBLIC',
        tables, functions);

    -- Workers have a role of their own, which is of the whole server. Where this user may not make
    -- it, docs/transactions.md has the statements.
    IF (SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user)
        AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'millrace_worker') THEN
        BEGIN
            CREATE ROLE millrace_worker NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN -- made at the same time
            NULL;
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'millrace_worker') THEN
        EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %I TO millrace_worker', functions);
        EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %1$I.complete(uuid, json),
            %1$I.fail(uuid, text, boolean, text) TO millrace_worker', functions);
    END IF;
END $migration$;
-- +goose StatementEnd
