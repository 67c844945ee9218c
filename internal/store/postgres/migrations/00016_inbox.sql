-- +goose Up
-- Requests that producers have submitted by SQL (decision 0090). Those of one transaction of a
-- producer have a row of inbox_transactions, by which nodes take them, and are submitted in the
-- order of their numbers. The row is gone when none of them waits. xid and began identify the
-- transaction; due_at: from when on a node may take it, which for one that is taken is the end of
-- the node's lease; tries: how often its requests could not be submitted yet. Times are microseconds
-- since 1970 UTC. The text of a request that was submitted is NULL: the job has it.
CREATE TABLE inbox_transactions (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid    BIGINT NOT NULL,
    began  BIGINT NOT NULL,
    due_at BIGINT NOT NULL DEFAULT 0,
    tries  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (xid, began)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
-- The sum keeps the planner from looking for numbers in this index.
CREATE INDEX inbox_transactions_due ON inbox_transactions (due_at, (number + 0));

CREATE TABLE inbox (
    number          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id              UUID NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    transaction     BIGINT NOT NULL,
    state           TEXT NOT NULL DEFAULT 'waiting',
    contract        TEXT NOT NULL,
    owner           TEXT NOT NULL,
    job_type        TEXT NOT NULL,
    idempotency_key TEXT,
    request         TEXT,
    producer        TEXT NOT NULL,
    created_at      BIGINT NOT NULL,
    finished_at     BIGINT,
    seq             BIGINT,
    job_id          TEXT,
    error           TEXT,
    CHECK (state IN ('waiting', 'submitted', 'refused'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX inbox_key ON inbox (contract, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX inbox_waiting ON inbox (transaction, number) WHERE state = 'waiting';
-- Lists of few rows have the condition and the order of this index and so can use no other.
CREATE INDEX inbox_state ON inbox (state, (-number)) WHERE state <> 'submitted';
CREATE INDEX inbox_age ON inbox (finished_at) WHERE finished_at IS NOT NULL;

-- What producers use is in the schema millrace where the tables are in public, else beside the
-- tables: several stores in one database do not share it. It runs with the rights of its owner, and
-- whoever submits is known by session_user alone.
-- +goose StatementBegin
DO $migration$
DECLARE
    tables name := pg_catalog.current_schema();
    functions name := CASE tables WHEN 'public' THEN 'millrace' ELSE tables END;
    foreign_owner name := (SELECT o.rolname FROM pg_catalog.pg_namespace AS n
        JOIN pg_catalog.pg_roles AS o ON o.oid = n.nspowner
        JOIN pg_catalog.pg_roles AS me ON me.rolname = current_user
        WHERE n.nspname = functions AND functions <> tables AND o.oid <> me.oid AND NOT o.rolsuper
        AND (me.rolsuper OR NOT pg_catalog.pg_has_role(me.oid, o.oid, 'MEMBER')));
BEGIN
    -- Whoever owns the schema could add functions that fit a call better.
    IF foreign_owner IS NOT NULL THEN
        RAISE EXCEPTION 'the schema % belongs to the role %, whose functions could be taken for '
            'those of Millrace: ALTER SCHEMA % OWNER TO % makes it this one''s', functions,
            pg_catalog.quote_ident(foreign_owner), functions, pg_catalog.quote_ident(current_user)
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF pg_catalog.to_regnamespace(pg_catalog.quote_ident(functions)) IS NULL THEN
        BEGIN
            EXECUTE pg_catalog.format('CREATE SCHEMA %I', functions);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE EXCEPTION 'the role % may not make the schema %, which producers use: '
                'GRANT CREATE ON DATABASE % TO % lets it', current_user, functions,
                pg_catalog.quote_ident(pg_catalog.current_database()),
                pg_catalog.quote_ident(current_user)
                USING ERRCODE = 'insufficient_privilege';
        END;
    ELSIF EXISTS (SELECT FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n
        ON n.oid = p.pronamespace WHERE n.nspname = functions AND p.proname = 'submit') THEN
        RAISE EXCEPTION 'the schema % has the functions of another store: of two stores in one '
            'database none may have its tables in the schema millrace while those of the other '
            'are in public', functions USING ERRCODE = 'duplicate_function';
    END IF;
    EXECUTE pg_catalog.format($body$
CREATE FUNCTION %1$I.submit(contract text, request json, idempotency_key text DEFAULT NULL,
    owner text DEFAULT NULL, job_type text DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    this_xid bigint := pg_current_xact_id()::text::bigint;
    this_began bigint := (date_part('epoch', now()) * 1000000)::bigint;
    group_number bigint;
    made uuid;
    problem text := CASE
        WHEN submit.contract IS NULL THEN 'contract is null'
        WHEN char_length(submit.contract) NOT BETWEEN 1 AND 100
            THEN 'contract must have 1 to 100 characters'
        WHEN submit.request IS NULL THEN 'request is null'
        WHEN octet_length(submit.request::text) > 16777216
            THEN 'request must have at most 16777216 bytes'
        WHEN json_typeof(submit.request) <> 'object' THEN 'request must be a JSON object'
        WHEN char_length(submit.idempotency_key) NOT BETWEEN 1 AND 255
            THEN 'idempotency_key must have 1 to 255 characters'
        WHEN char_length(submit.owner) NOT BETWEEN 1 AND 255
            THEN 'owner must have 1 to 255 characters'
        WHEN char_length(submit.job_type) NOT BETWEEN 1 AND 255
            THEN 'job_type must have 1 to 255 characters'
        END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'MILLRACE_INVALID: %%', problem USING ERRCODE = 'MR002';
    END IF;
    IF submit.idempotency_key IS NOT NULL THEN
        SELECT i.id INTO made FROM %2$I.inbox AS i
            WHERE i.contract = submit.contract AND i.idempotency_key = submit.idempotency_key;
        IF FOUND THEN
            RETURN made;
        END IF;
    END IF;
    SELECT t.number INTO group_number FROM %2$I.inbox_transactions AS t
        WHERE t.xid = this_xid AND t.began = this_began;
    IF NOT FOUND THEN
        INSERT INTO %2$I.inbox_transactions AS t (xid, began) VALUES (this_xid, this_began)
            RETURNING t.number INTO group_number;
        PERFORM pg_notify('millrace', 'sql,-1jed63iv8a95h');
    END IF;
    LOOP
        INSERT INTO %2$I.inbox AS i (transaction, contract, owner, job_type, idempotency_key,
            request, producer, created_at)
        VALUES (group_number, submit.contract, coalesce(submit.owner, ''),
            coalesce(submit.job_type, ''), submit.idempotency_key, submit.request::text,
            session_user, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
        ON CONFLICT (contract, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        RETURNING i.id INTO made;
        EXIT WHEN FOUND;
        -- Another transaction has stored the key meanwhile.
        SELECT i.id INTO made FROM %2$I.inbox AS i
            WHERE i.contract = submit.contract AND i.idempotency_key = submit.idempotency_key;
        EXIT WHEN FOUND; -- else it was removed meanwhile
    END LOOP;
    RETURN made;
END $$
$body$, functions, tables);
    EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION
        %I.submit(text, json, text, text, text) FROM PUBLIC', functions);
    -- A barrier, so that no condition of a caller sees the rows of other producers.
    EXECUTE pg_catalog.format($body$
CREATE VIEW %1$I.submissions WITH (security_barrier) AS
    SELECT i.id, i.state, i.contract, i.job_id, i.error FROM %2$I.inbox AS i
    WHERE i.producer = session_user
$body$, functions, tables);
    REVOKE ALL ON FUNCTION ready_arrives() FROM PUBLIC; -- producers have no use for it

    -- The role is of the whole server. Where this user may not make it, docs/transactions.md has
    -- the statements.
    IF (SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user)
        AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'millrace_producer') THEN
        BEGIN
            CREATE ROLE millrace_producer NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN -- made at the same time
            NULL;
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'millrace_producer') THEN
        EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %I TO millrace_producer', functions);
        EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %I.submit(text, json, text, text, text)
            TO millrace_producer', functions);
        EXECUTE pg_catalog.format('GRANT SELECT ON %I.submissions TO millrace_producer', functions);
    END IF;
END $migration$;
-- +goose StatementEnd
